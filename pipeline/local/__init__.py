"""The set-up of one machine: what altneu needs besides its Python packages, and the commands that run services here.

The entry point is `setup.set_up`. Everything goes to `storage.assets.ASSETS`, inside of the Python environment.
"""
