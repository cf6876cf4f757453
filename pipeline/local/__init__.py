"""What altneu is on one machine: what it needs besides its Python packages, and how that is made.

Door: `setup.set_up`. Everything goes to `spark.ASSETS`, inside of the Python environment.
"""
