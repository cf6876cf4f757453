"""Queries as text: one SELECT of SQL, compiled to joins that can be maintained and to at most one last step.

`compile_query` reads the dialect of DuckDB, because an audit runs the very text in DuckDB, and writes expressions for
Spark. What is taken: SELECT with expressions on a row's own values, JOIN … ON or USING with at least one equality,
WHERE, LEFT JOIN and NOT EXISTS on the key of a set, UNION and UNION ALL of these; and then DISTINCT, or GROUP BY with
count, sum, avg, min and max, and HAVING, or the first rows of each group by QUALIFY rank() <= k. Everything else is
refused by name, and so is every expression that the two engines might evaluate differently.

Law      The rows of a query are those of its `cores`, natural joins of atoms with conditions and outputs, whose signed
         results add up, and of the last step on them: the sums by key (`CompiledQuery.sums`), of which `having` and
         `select` make the rows. R without S is R minus R ⋈ S, because no row of R meets two rows of the set S.
Bags     A row may occur several times, as in SQL. Where it cannot, the result has a `key`.
Age      The column `age` of a log says how many epochs ago a row landed. It occurs only in comparisons with numbers,
         which become a `window` of the atom.
Cost     Some 10 ms a query, without Spark.
Errors   `QueryError`, a ValueError with the line and the column in the text, from 1, and what to write instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NoReturn

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, ParseError, TokenError
from sqlglot.optimizer.qualify import qualify

from altneu.algorithms.algebra.time_lattice import FOREVER
from altneu.algorithms.sql_text import quote_identifier

ColumnOf = tuple[str, str]  # a relation and one of its columns
AGE = "age"
RESERVED = ("epoch", "until", "revision", "diff", "copies")  # no columns of a result have these names
_TYPES = {"vertex": "BIGINT", "bigint": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "boolean": "BOOLEAN"}
_RESULT_TYPES = dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", '"NULL"'), "bigint")
_RESULT_TYPES |= {"FLOAT": "double", "DOUBLE": "double", "VARCHAR": "string", "BOOLEAN": "boolean"}
_KINDS = {"vertex": "vertex", "bigint": "number", "double": "number", "string": "text", "boolean": "truth"}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_SUMS, _EXTREMES = (exp.Count, exp.Sum, exp.Avg), (exp.Min, exp.Max)
_ALTERNATIVES = (exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least)
_RANKED = "QUALIFY rank() OVER (PARTITION BY … ORDER BY …) <= 3"
_ONE_SELECT = "a query is one SELECT, or several with UNION or UNION ALL"
_REFUSED: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.With, "WITH: make it a query of its own, queries/NAME.sql, and name that"),
    (exp.Window, f"a window function cannot be maintained, but for the first of a group: {_RANKED}"),
    (exp.Order, "a result has no order: use --sort and --top when you read it"),
    (exp.Limit, "a result has no order: use --sort and --top when you read it"),
    (exp.Offset, "a result has no order: use --sort and --top when you read it"),
    (exp.Lateral, "LATERAL cannot be maintained"),
    (exp.Pivot, "PIVOT cannot be maintained"),
    (exp.TableSample, "a sample is another one on the next run"),
    (exp.Parameter, "a parameter has no value: write the constant"),
    (exp.Placeholder, "a parameter has no value: write the constant"),
)


class QueryError(ValueError):
    """A query that is refused: why, and where in its text, counted from 1."""

    def __init__(self, why: str, line: int = 1, column: int = 1) -> None:
        super().__init__(why)
        self.why, self.line, self.column = why, line, column

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.why}"


@dataclass(frozen=True)
class Relation:
    """What a query may name: its columns with their types, and the columns of which no two rows have the same values,
    or none where a row may occur twice.

    Types are Spark's, and `vertex`: a number that stands for a name, which can only be joined, compared and grouped by.
    """

    columns: Mapping[str, str]
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class QueryAtom:
    """One occurrence of a relation: the columns that are used, and a variable for each.

    where: a condition on its rows alone. window: the ages `[least, end)` at which its rows count, or None for all.
    """

    relation: str
    columns: tuple[str, ...]
    terms: tuple[str, ...]
    where: str | None = None
    window: tuple[int, int] | None = None


@dataclass(frozen=True)
class Core:
    """A natural join of atoms. Conditions and outputs are Spark SQL over its variables.

    conditions: each with its variables. outputs: column → expression. sign: -1 where the results are taken away from
    those of other cores: what an outer join or NOT EXISTS finds.
    """

    atoms: tuple[QueryAtom, ...]
    less_than: tuple[tuple[str, str], ...]
    different: tuple[tuple[str, str], ...]
    conditions: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, str]
    sign: int = 1


@dataclass(frozen=True)
class CompiledQuery:
    """A query that can be maintained. Types are Spark's.

    cores: joins whose results add up. core_types: their columns with their types. keys: those that the last step groups
    by. sums: the sums of the last step by name. All of them are empty where there is no last step. select: column of
    the result → expression over the keys and sums, or over the columns of the core. key: columns of the result of
    which no two rows have the same values, or none where a row may occur twice. vertices: columns of the result whose
    values are vertices with names. ranking: the last step where it keeps
    the first rows of each group. used: the columns that occur in the text, with their relations. sources: column of
    the result → those of them that its values are made of. deciding: those of them that decide which rows there are,
    and how they are grouped.
    """

    cores: tuple[Core, ...]
    core_types: Mapping[str, str]
    keys: tuple[str, ...]
    sums: Mapping[str, Measure]
    having: str | None
    select: Mapping[str, str]
    types: Mapping[str, str]
    normal_form: str
    key: tuple[str, ...] = ()
    vertices: tuple[str, ...] = ()
    ranking: Ranking | None = None
    used: frozenset[ColumnOf] = frozenset()
    sources: Mapping[str, frozenset[ColumnOf]] = field(default_factory=dict)
    deciding: frozenset[ColumnOf] = frozenset()

    @property
    def is_grouped(self) -> bool:
        """Tell whether there is a last step."""
        return bool(self.sums) or self.ranking is not None

    @property
    def keeps_rows(self) -> bool:
        """Tell whether the last step needs all rows of a group, and not only their sums."""
        return self.ranking is not None or any(measure.extreme for measure in self.sums.values())

    @property
    def relations(self) -> tuple[str, ...]:
        """Return the relations that the query reads, each once."""
        return tuple(dict.fromkeys(atom.relation for core in self.cores for atom in core.atoms))

    def uses_column(self, relation: str, column: str) -> bool:
        """Tell whether the text names a column of a relation, or a star that contains it."""
        return (relation, column) in self.used


@dataclass(frozen=True)
class Measure:
    """A sum of the last step: of a column, or with `amount` None the number of rows; rows whose `counted_column` is
    null do not count. extreme: it is the least (`min`) or the greatest (`max`) value of the column instead.
    """

    amount: str | None = None
    counted_column: str | None = None
    extreme: str | None = None


@dataclass(frozen=True)
class Ranking:
    """A last step that keeps the rows of a group whose rank is at most `max_rank`. order: the columns of the core by
    which they are ranked → whether the greatest value comes first; nulls come last.
    """

    order: Mapping[str, bool]
    max_rank: int


ROWS = "m0"  # the sum that counts rows: a key has a result where it is positive


def compile_query(text: str, relations: Mapping[str, Relation]) -> CompiledQuery:
    """Compile the text of a query over some relations.

    Raises:
        QueryError: the query cannot be maintained, or one of the engines would refuse it.
    """
    return _compile_tree(text, _parse(text), relations)


def named_relations(text: str) -> frozenset[str]:
    """Return the names of the relations in a text, in lower case: none where it cannot be parsed."""
    try:
        tree = parse_statement(text)
    except QueryError:
        return frozenset()
    return frozenset(node.name.lower() for node in tree.find_all(exp.Table)) - named_parts(tree)


def named_parts(tree: exp.Expr) -> frozenset[str]:
    """Return the names that a statement gives to its own parts by WITH, in lower case."""
    return frozenset(part.alias.lower() for part in tree.find_all(exp.CTE))


def spark_text(text: str) -> str:
    """Return the text of a query for Spark."""
    return str(sqlglot.parse_one(text, dialect="duckdb").sql(dialect="spark"))


def _parse(text: str) -> exp.Select | exp.Union:
    """Parse a text, and refuse what is no single SELECT or UNION."""
    tree = parse_statement(text)
    if not isinstance(tree, (exp.Select, exp.Union)):
        raise QueryError(_ONE_SELECT)
    return tree


def parse_statement(text: str) -> exp.Expr:
    """Parse a text, and refuse what is no single statement."""
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect="duckdb") if tree is not None]
    except TokenError:
        raise QueryError("a quote is not closed") from None
    except ParseError as error:
        details = error.errors[0]
        why = f"{str(details['highlight'])!r} is not expected there"
        raise QueryError(why, int(details["line"]), max(1, int(details["col"]))) from None
    if len(trees) != 1:
        raise QueryError(_ONE_SELECT)
    return trees[0]


def _compile_tree(text: str, tree: exp.Expr, relations: Mapping[str, Relation]) -> CompiledQuery:
    if isinstance(tree, exp.Union):
        return _compile_union(text, tree, relations)
    if not isinstance(tree, exp.Select):
        raise QueryError(f"{tree.sql(dialect='duckdb')}: UNION joins SELECTs without brackets")
    return _Compiler(text, tree, relations).compile()


def _compile_union(text: str, tree: exp.Union, relations: Mapping[str, Relation]) -> CompiledQuery:
    """Compile a union of SELECTs without a last step: their cores add up. UNION without ALL is DISTINCT of that."""
    if any(tree.args.get(part) for part in ("order", "limit", "offset", "with_")):
        raise QueryError("a result has no order: use --sort and --top when you read it")
    distinct, left = bool(tree.args.get("distinct")), tree.this
    if distinct and isinstance(left, exp.Union):  # what is distinct before is distinct in the end
        left = left.copy()
        left.set("distinct", False)
    one, other = sides = [_compile_tree(text, side, relations) for side in (left, tree.expression)]
    if one.is_grouped or other.is_grouped:
        raise QueryError("a part of a UNION has no GROUP BY, DISTINCT or UNION without ALL")
    if list(one.types.values()) != list(other.types.values()):
        raise QueryError(f"the parts of a UNION have the types {_list_types(one)} and {_list_types(other)}")
    names = [f"k{i}" if distinct else name for i, name in enumerate(one.types)]
    cores = tuple(
        replace(core, outputs=dict(zip(names, core.outputs.values(), strict=True)))
        for side in sides
        for core in side.cores
    )
    return CompiledQuery(
        cores=cores,
        core_types=dict(zip(names, one.types.values(), strict=True)),
        keys=tuple(names) if distinct else (),
        sums={ROWS: Measure()} if distinct else {},
        having=None,
        select={name: quote_identifier(column) for name, column in zip(one.types, names, strict=True)},
        types=one.types,
        normal_form=f"{one.normal_form} UNION {'' if distinct else 'ALL '}{other.normal_form}",
        key=tuple(one.types) if distinct else (),
        vertices=tuple(name for name in one.vertices if name in other.vertices),
        used=one.used | other.used,
        sources={
            name: left | right
            for name, left, right in zip(one.types, one.sources.values(), other.sources.values(), strict=True)
        },
        deciding=one.used | other.used if distinct else one.deciding | other.deciding,
    )


def _list_types(query: CompiledQuery) -> str:
    return ", ".join(query.types.values())


@dataclass(frozen=True)
class _Form:
    """One join of a query with anti-joins and outer joins: its sign, atoms and conditions, and the atoms whose columns
    are null in the outputs.
    """

    sign: int
    aliases: tuple[str, ...]
    conditions: tuple[exp.Expr, ...]
    nulled: frozenset[str] = frozenset()


class _Compiler:
    """The compilation of one SELECT. `sources` maps the alias of each atom to its relation.

    outer: the aliases of LEFT JOIN. negated: those of NOT EXISTS.
    """

    def __init__(self, text: str, tree: exp.Select, relations: Mapping[str, Relation]) -> None:
        self.text, self.tree, self.relations = text, tree, relations
        self.outer: list[str] = []
        self.negated: list[str] = []
        self.sources: dict[str, str] = {}
        self.types: dict[tuple[str, str], str] = {}  # (alias, lower-case column) → type
        self.names: dict[tuple[str, str], str] = {}  # (alias, lower-case column) → column

    def compile(self) -> CompiledQuery:
        tree = self.qualify_names(self.read_select())
        return self.add_last_step(tree, self.list_forms(tree))

    # -- Reading --------------------------------------------------------------------------------------------------

    def read_select(self) -> exp.Select:
        """Refuse what is no SELECT over known relations, and find its atoms."""
        tree = self.tree
        for kind, why in _REFUSED:
            for node in tree.find_all(kind):
                if node.find_ancestor(exp.Qualify) is None:
                    self.refuse(node, why)
        negated = [node.this for node in tree.find_all(exp.Exists) if isinstance(node.parent, exp.Not)]
        for node in tree.find_all(exp.Select, exp.Subquery):
            if node is not tree and not any(node is each for each in negated):
                self.refuse(node, "a subquery: make it a query of its own, queries/NAME.sql, and name that")
        self.read_sources(tree)
        for select in negated:
            self.read_negated(select)
        return tree

    def read_negated(self, select: exp.Select) -> None:
        """Find the atom of a NOT EXISTS."""
        others = [name for name, part in select.args.items() if part and name not in ("expressions", "from_", "where")]
        if others or not select.args.get("from_") or not select.args.get("where"):
            self.refuse(select, "NOT EXISTS is of one relation: NOT EXISTS (SELECT 1 FROM r WHERE r.key = a.column)")
        self.negated.append(self.add_source(select.args["from_"].this))

    def read_sources(self, tree: exp.Select) -> None:
        """Find the relations of the atoms."""
        if tree.args.get("from_") is None:
            self.refuse(tree, f"a query reads a relation: FROM {' or '.join(self.relations)}")
        joins = tree.args.get("joins") or []
        self.add_source(tree.args["from_"].this)
        for join in joins:
            words = (join.method or "", join.side or "", join.kind or "")
            if words not in (("", "", ""), ("", "", "INNER"), ("", "LEFT", ""), ("", "LEFT", "OUTER")):
                self.refuse(join.this, f"{' '.join(filter(None, words))} JOIN is not supported")
            alias = self.add_source(join.this)
            self.outer += [alias] if join.side else []

    def add_source(self, node: exp.Expr) -> str:
        """Note an atom, and return its alias."""
        if not isinstance(node, exp.Table) or node.db:
            self.refuse(node, "this is no relation: make it a query of its own, queries/NAME.sql, and name that")
        alias = str(node.alias_or_name).lower()
        if alias in self.sources:
            self.refuse(node, f"{alias} is there twice: name one of them, {node.name} AS b")
        self.sources[alias] = self.find_name(node, node.name, self.relations, "relation", "")
        for column, type_ in self.relations[self.sources[alias]].columns.items():
            self.types[alias, column.lower()], self.names[alias, column.lower()] = type_, column
        return alias

    def qualify_names(self, tree: exp.Select) -> exp.Select:
        """Return the tree with the atom of every column, and with stars, USING, ordinals and aliases written out."""
        for column in tree.find_all(exp.Column):
            self.require_column(column, tree)
        schema: dict[str, object] = {
            name.lower(): {column.lower(): _TYPES[type_] for column, type_ in relation.columns.items()}
            for name, relation in self.relations.items()
        }
        try:
            done = qualify(tree.copy(), schema=schema, dialect="duckdb", quote_identifiers=False)
        except OptimizeError as error:
            self.refuse(None, str(error).splitlines()[0])
        assert isinstance(done, exp.Select)
        return done

    def require_column(self, column: exp.Column, tree: exp.Select) -> None:
        """Refuse a column that no atom has, or several have."""
        name, alias = column.name.lower(), column.table.lower()
        if isinstance(column.this, exp.Star):
            return
        if alias and alias not in self.sources:
            self.refuse(column, f"there is no {column.table} in FROM; there are {', '.join(self.sources)}")
        scope = self.scope_of(column)
        owners = [owner for owner in ([alias] if alias else scope) if (owner, name) in self.types]
        using = {each.name.lower() for join in tree.args.get("joins") or () for each in join.args.get("using") or ()}
        if len(owners) == 1 or (owners and name in using):
            return
        if any(select.alias.lower() == name for select in tree.selects if select.alias):
            return
        if owners:
            written = " or ".join(f"{owner}.{name}" for owner in owners)
            self.refuse(column, f"{name} is of {' and of '.join(owners)}: write {written}")
        of = [alias] if alias else list(self.sources)
        columns = list(dict.fromkeys(known for owner, known in self.types if owner in of))
        self.find_name(column, column.name, columns, "column", f"; {' and '.join(of)} has {', '.join(columns)}")

    def scope_of(self, column: exp.Column) -> list[str]:
        """Return the atoms that a column without an alias may be of: within NOT EXISTS, that of it comes first."""
        outside = [alias for alias in self.sources if alias not in self.negated]
        select = column.find_ancestor(exp.Select)
        if select is None or select is self.tree:
            return outside
        inside = str(select.args["from_"].this.alias_or_name).lower()
        return [inside] if (inside, column.name.lower()) in self.types else outside

    def find_name(self, node: exp.Expr, name: str, known: Iterable[str], what: str, listing: str) -> str:
        """Return the known name that is meant, or refuse it with the nearest one."""
        by_lower = {each.lower(): each for each in known}
        if name.lower() in by_lower:
            return by_lower[name.lower()]
        near = difflib.get_close_matches(name.lower(), by_lower, 1)
        listing = listing or f"; there are {', '.join(by_lower.values())}"
        hint = f". Did you mean {by_lower[near[0]]}?" if near else ""
        self.refuse(node, f"there is no {what} {name}{listing}{hint}")

    def list_forms(self, tree: exp.Select) -> list[_Form]:
        """Return the joins that a query consists of, by inclusion and exclusion over its anti-joins and outer joins.

        The rows of a relation that no row of a set matches are all its rows, less those that one matches: at most one
        does, where the key of the set is joined.
        """
        joins, where = tree.args.get("joins") or [], tree.args.get("where")
        conditions_by_alias = {str(join.this.alias_or_name): list(_conjuncts_of(join.args.get("on"))) for join in joins}
        tests = list(_conjuncts_of(where.this if where else None))
        negated = [test.this.this for test in tests if isinstance(test, exp.Not) and isinstance(test.this, exp.Exists)]
        plain = [test for test in tests if not (isinstance(test, exp.Not) and isinstance(test.this, exp.Exists))]
        for alias, conditions in conditions_by_alias.items():
            plain += [] if alias in self.outer else conditions
        self.refuse_late_conditions(plain)
        inside = tuple(alias for alias in self.sources if alias not in (*self.outer, *self.negated))
        forms = [_Form(1, inside, tuple(plain))]
        for select in negated:
            alias, conditions = (
                str(select.args["from_"].this.alias_or_name),
                list(_conjuncts_of(select.args["where"].this)),
            )
            self.require_key(select, alias, conditions)
            forms += [_extend(form, alias, conditions, -form.sign) for form in forms]
        for alias in self.outer:
            self.require_key(tree, alias, conditions_by_alias[alias])
            matched = [_extend(form, alias, conditions_by_alias[alias], form.sign) for form in forms]
            unmatched = [replace(form, nulled=form.nulled | {alias}) for form in forms]
            taken = [_extend(form, alias, conditions_by_alias[alias], -form.sign) for form in unmatched]
            forms = [*matched, *unmatched, *taken]
        for form in forms:
            for condition in form.conditions:
                self.require_kind(condition, "truth")
        return forms

    def refuse_late_conditions(self, conditions: Iterable[exp.Expr]) -> None:
        """Refuse conditions on the nulls of an outer join."""
        for condition in conditions:
            for column in condition.find_all(exp.Column):
                if column.table in self.outer:
                    why = "put the condition into ON, or JOIN without LEFT"
                    self.refuse(
                        condition, f"{self.show_expression(condition)} is about the LEFT JOIN of {column.table}: {why}"
                    )

    def require_key(self, node: exp.Expr, alias: str, conditions: Iterable[exp.Expr]) -> None:
        """Refuse an anti-join or outer join in which more than one row might match."""
        key, name = self.relations[self.sources[alias]].key, self.sources[alias]
        equal = {
            side.name
            for condition in conditions
            if isinstance(condition, exp.EQ)
            for side, other in ((condition.this, condition.expression), (condition.expression, condition.this))
            if isinstance(side, exp.Column) and side.table == alias
            if not any(column.table == alias for column in other.find_all(exp.Column))
        }
        if not key or not {column.lower() for column in key} <= equal:
            has = f"its key is {', '.join(key)}" if key else "it has no key"
            self.refuse(node, f"more than one row of {name} may match {alias}: {has}")

    # -- Expressions ----------------------------------------------------------------------------------------------

    def require_kind(self, node: exp.Expr, wanted: str | None = None) -> str:
        """Return the kind of an expression's values (number, text, truth or null), or refuse it.

        What is refused might have another value in Spark than in DuckDB, or is another kind than `wanted`.
        """
        kind = self.kind_of(node)
        if wanted and kind not in (wanted, "null"):
            self.refuse(node, f"{self.show_expression(node)} is a {kind}, where a {wanted} is expected")
        return kind

    def kind_of(self, node: exp.Expr) -> str:
        match node:
            case exp.Column():
                return _KINDS[self.types[node.table, node.name]]
            case exp.Literal():
                return "text" if node.is_string else "number"
            case exp.Boolean():
                return "truth"
            case exp.Null():
                return "null"
            case exp.Paren() | exp.Alias():
                return self.kind_of(node.this)
            case exp.Neg() | exp.Abs():
                return self.require_kind(node.this, "number")
            case exp.And() | exp.Or() | exp.Not():
                return self.common_kind(node, [node.this, node.args.get("expression")], "truth")
            case exp.Is() if isinstance(node.expression, (exp.Null, exp.Boolean)):
                self.kind_of(node.this)
                return "truth"
            case exp.In() if node.expressions:
                self.common_kind(node, [node.this, *node.expressions])
                return "truth"
            case exp.Between() if not node.args.get("symmetric"):
                self.common_kind(node, [node.this, node.args["low"], node.args["high"]])
                return "truth"
            case exp.Case() if node.this is None:
                for each in node.args["ifs"]:
                    self.require_kind(each.this, "truth")
                return self.common_kind(
                    node, [*(each.args["true"] for each in node.args["ifs"]), node.args.get("default")]
                )
            case exp.Length():
                self.require_kind(node.this, "text")
                return "number"
            case exp.Lower() | exp.Upper():
                return self.require_kind(node.this, "text")
            case exp.DPipe():
                return self.common_kind(node, [node.this, node.expression], "text")
            case exp.Like() if isinstance(node.expression, exp.Literal) and "\\" not in node.expression.name:
                self.require_kind(node.this, "text")
                return "truth"
            case exp.Cast() if node.to.this == exp.DataType.Type.DOUBLE:
                return self.require_kind(node.this, "number")
            case exp.Mod() | exp.Div():
                self.require_divisor(node)
        if isinstance(node, _ARITHMETIC):
            return self.common_kind(node, [node.this, node.expression], "number")
        if isinstance(node, _COMPARISONS):
            self.common_kind(node, [node.this, node.expression])
            return "truth"
        if isinstance(node, _ALTERNATIVES):
            return self.common_kind(node, [node.this, node.args.get("expression"), *node.expressions])
        self.refuse(node, f"{self.show_expression(node)} is not supported{explain_unsteadiness(node)}")

    def require_divisor(self, node: exp.Mod | exp.Div) -> None:
        """Refuse a divisor that may be zero, where Spark fails and DuckDB does not."""
        by = node.expression.unnest()
        is_literal = isinstance(by, exp.Literal) and not by.is_string and float(by.name) != 0
        is_guarded = isinstance(by, exp.Nullif) and by.expression.name == "0"
        if not (is_literal or is_guarded):
            self.refuse(node, f"{self.show_expression(by)} may be 0: divide by nullif({self.show_expression(by)}, 0)")

    def common_kind(self, node: exp.Expr, parts: Iterable[exp.Expr | None], wanted: str | None = None) -> str:
        kinds = {self.require_kind(part, wanted) for part in parts if part is not None} - {"null"}
        if len(kinds) > 1:
            self.refuse(node, f"{self.show_expression(node)} mixes a {' and a '.join(sorted(kinds))}")
        return next(iter(kinds), wanted or "null")

    # -- The last step --------------------------------------------------------------------------------------------

    def add_last_step(self, tree: exp.Select, forms: list[_Form]) -> CompiledQuery:
        """Return the compiled query: the core, and the sums by key where the query groups or is DISTINCT."""
        group, having, distinct = (tree.args.get(name) for name in ("group", "having", "distinct"))
        is_summed = any(select.find(exp.AggFunc) for select in tree.selects)
        self.require_result_names(tree)
        if (qualify := tree.args.get("qualify")) is not None:
            if group or distinct or is_summed:
                self.refuse(qualify, "QUALIFY on groups: make one of them a query of its own, queries/NAME.sql")
            return self.add_ranking(tree, forms, qualify.this)
        if distinct and (group or is_summed):
            self.refuse(tree, "DISTINCT of groups: make one of them a query of its own, queries/NAME.sql")
        if having and not group:
            self.refuse(tree, "HAVING without GROUP BY")
        if is_summed and not group:
            why = "has a row even where nothing has landed: write GROUP BY, by a constant for one row ('all' AS what)"
            self.refuse(tree.selects[0], f"an aggregate without GROUP BY {why}")
        if group is None:
            outputs = {select.alias: select.unalias() for select in tree.selects}
            if not distinct:
                return self.build_query(
                    tree, forms, outputs, (), {}, None, {name: quote_identifier(name) for name in outputs}
                )
            keys = {f"k{i}": node for i, node in enumerate(outputs.values())}
            select = {name: key for name, key in zip(outputs, keys, strict=True)}
            return self.build_query(tree, forms, keys, tuple(keys), {ROWS: Measure()}, None, select)
        if set(group.args) - {"expressions"} and any(group.args[name] for name in group.args if name != "expressions"):
            self.refuse(group, "GROUP BY lists columns or expressions only")
        keys = {f"k{i}": self.resolve_ordinal(tree, node) for i, node in enumerate(group.expressions)}
        sums = _Sums(self, keys)
        select = {each.alias: sums.rewrite(each.unalias()) for each in tree.selects}
        having_text = None if having is None else sums.rewrite(having.this)
        return self.build_query(tree, forms, keys | sums.amounts, tuple(keys), sums.measures, having_text, select)

    def add_ranking(self, tree: exp.Select, forms: list[_Form], condition: exp.Expr) -> CompiledQuery:
        """Return the compiled query of a SELECT with QUALIFY."""
        window = condition.this
        most = _whole_number(condition.expression) if isinstance(condition, (exp.LTE, exp.LT)) else None
        if most is None or not isinstance(window, exp.Window) or not isinstance(window.this, exp.Rank):
            self.refuse(condition, f"{self.show_expression(condition)} is not supported: {_RANKED}")
        order, by = window.args.get("order"), window.args.get("partition_by")
        if not by or not order or window.args.get("spec"):
            self.refuse(window, f"{self.show_expression(window)}: {_RANKED}")
        for each in order.expressions:
            if each.args.get("nulls_first"):
                self.refuse(each, "NULLS FIRST is not supported: nulls come last")
            if self.kind_of(each.this) == "vertex":
                self.refuse(each, f"{self.show_expression(each.this)}: vertices with names have no order")
        keys = {f"k{i}": node for i, node in enumerate(by)}
        ranks = {f"o{i}": node.this for i, node in enumerate(order.expressions)}
        columns = {f"c{i}": select.unalias() for i, select in enumerate(tree.selects)}
        ranking = Ranking(
            {f"o{i}": bool(node.args.get("desc")) for i, node in enumerate(order.expressions)},
            most - isinstance(condition, exp.LT),
        )
        select = {each.alias: name for each, name in zip(tree.selects, columns, strict=True)}
        return self.build_query(tree, forms, keys | ranks | columns, tuple(keys), {}, None, select, ranking)

    def resolve_ordinal(self, tree: exp.Select, node: exp.Expr) -> exp.Expr:
        """Return the expression that `GROUP BY 1` means, where it is a constant: `qualify` leaves these as they are."""
        number = _whole_number(node)
        if number is None:
            return node
        if not 1 <= number <= len(tree.selects):
            self.refuse(node, f"GROUP BY {number}: the query has {len(tree.selects)} columns")
        return tree.selects[number - 1].unalias()

    def require_result_names(self, tree: exp.Select) -> None:
        seen: set[str] = set()
        for select in tree.selects:
            name = select.alias_or_name
            if name.startswith("_"):
                self.refuse(select.unalias(), f"{self.show_expression(select.unalias())} needs a name: … AS name")
            if name in RESERVED:
                self.refuse(
                    select, f"a column of a result cannot be called {name}: name it otherwise, {name} AS at_{name}"
                )
            if name in seen:
                self.refuse(
                    select, f"two columns of the result are called {name}: name one of them otherwise, … AS name"
                )
            seen.add(name)

    def build_query(
        self,
        tree: exp.Select,
        forms: list[_Form],
        outputs: Mapping[str, exp.Expr],
        keys: tuple[str, ...],
        sums: Mapping[str, Measure],
        having: str | None,
        select: Mapping[str, str],
        ranking: Ranking | None = None,
    ) -> CompiledQuery:
        for node in outputs.values():
            self.require_kind(node)
        cores = tuple(_CoreBuilder(self, form, outputs).build() for form in forms)
        shown = tree.copy()
        for part in ("group", "having", "distinct", "qualify"):
            shown.set(part, None)
        columns = [exp.alias_(node.copy(), name) for name, node in outputs.items()]
        core_types = self.describe(shown.select(*columns, append=False).sql(dialect="duckdb"))
        for measure in sums.values():
            if measure.amount and measure.extreme is None and core_types[measure.amount] != "bigint":
                why = "depends on the order in which its numbers are added: use whole numbers (cents)"
                self.refuse(outputs[measure.amount], f"a sum of {core_types[measure.amount]}s {why}")
        types = self.describe(self.text if self.tree.parent is None else self.tree.sql(dialect="duckdb"))
        places = {part: name for name, part in select.items() if part in keys}  # key → a column of the result
        key = tuple(places.values()) if len(places) == len(keys) and ranking is None else ()
        normal = str(tree.sql(dialect="duckdb", comments=False))
        vertices = tuple(each.alias for each in tree.selects if self.is_vertex(each.unalias()))
        sources = {each.alias: self.columns_of(each) for each in tree.selects}
        used, deciding = self.columns_of(tree), self.deciding_columns(tree)
        return CompiledQuery(
            cores,
            core_types,
            keys,
            sums,
            having,
            select,
            types,
            normal,
            key,
            vertices,
            ranking,
            used,
            sources,
            deciding,
        )

    def deciding_columns(self, tree: exp.Select) -> frozenset[ColumnOf]:
        """Return the columns that decide which rows there are: those outside SELECT, and with DISTINCT all."""
        if tree.args.get("distinct"):
            return self.columns_of(tree)
        parts = [part for name, part in tree.args.items() if name != "expressions"]
        return self.columns_of(*chain.from_iterable(part if isinstance(part, list) else [part] for part in parts))

    def columns_of(self, *nodes: object) -> frozenset[ColumnOf]:
        """Return the columns of relations in parts of a tree, without aliases of the result."""
        columns = [column for node in nodes if isinstance(node, exp.Expr) for column in node.find_all(exp.Column)]
        return frozenset(
            (self.sources[each.table], self.names[each.table, each.name]) for each in columns if each.table
        )

    def is_vertex(self, node: exp.Expr) -> bool:
        return not node.find(exp.AggFunc) and self.kind_of(node) == "vertex"

    def describe(self, text: str) -> dict[str, str]:
        """Return the columns of a query with their types, as DuckDB finds them on empty relations."""
        return describe_types(text, {name: self.relations[name] for name in self.sources.values()})

    # -- Messages -------------------------------------------------------------------------------------------------

    def show_expression(self, node: exp.Expr) -> str:
        return str(node.sql(dialect="duckdb"))

    def refuse(self, node: exp.Expr | None, why: str) -> NoReturn:
        """Raise the error at the first token of a node whose position is known."""
        raise QueryError(why, *find_place(self.text, node))


def describe_types(text: str, relations: Mapping[str, Relation], vertex: str = _TYPES["vertex"]) -> dict[str, str]:
    """Return the columns of a text with their types, as DuckDB finds them on empty relations.

    `vertex` is the type of vertices with names there. Raises `QueryError` where DuckDB refuses the text, or a type
    cannot be stored.
    """
    types, known = _TYPES | {"vertex": vertex}, {vertex: "vertex"} | _RESULT_TYPES
    with duckdb.connect() as connection:
        for name, relation in relations.items():
            listed = ", ".join(f"{_double_quote(column)} {types[type_]}" for column, type_ in relation.columns.items())
            connection.execute(f"CREATE TABLE {_double_quote(name)} ({listed})")
        try:
            rows = connection.execute(f"DESCRIBE {text}").fetchall()
        except duckdb.Error as error:
            raise QueryError(str(error).splitlines()[0]) from None
    for name, type_, *_ in rows:
        if type_ not in known:
            raise QueryError(f"{name} is of type {type_}: CAST it AS double")
    return {name.lower(): known[type_] for name, type_, *_ in rows}


def find_place(text: str, node: exp.Expr | None) -> tuple[int, int]:
    """Return the line and the column, from 1, of the first token of a node whose position is known."""
    starts = [each.meta["start"] for each in (node.walk() if node is not None else ()) if "start" in each.meta]
    before = text[: min(starts, default=0)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


class _Sums:
    """The sums of a query that groups: which ones its expressions need."""

    def __init__(self, compiler: _Compiler, keys: Mapping[str, exp.Expr]) -> None:
        self.compiler = compiler
        self.keys = {node.sql(dialect="spark"): name for name, node in keys.items()}
        self.amounts: dict[str, exp.Expr] = {}  # column of the core → the argument of a sum
        self.measures: dict[str, Measure] = {ROWS: Measure()}

    def rewrite(self, node: exp.Expr) -> str:
        """Return an expression on the rows of a group as one on its keys and sums, for Spark."""

        def replace(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.AggFunc):
                return sqlglot.parse_one(self.sum_text(part), dialect="spark")
            name = self.keys.get(part.sql(dialect="spark"))
            return part if name is None else exp.column(name)

        self.require_kinds(node)
        done = node.copy().transform(replace)
        for column in done.find_all(exp.Column):
            if column.table:
                shown = self.compiler.show_expression(column)
                self.compiler.refuse(column, f"{shown} is neither grouped by nor within a sum")
        return str(done.sql(dialect="spark"))

    def require_kinds(self, node: exp.Expr) -> None:
        """Refuse expressions on sums that the engines might evaluate differently."""
        for part in node.find_all(exp.AggFunc):
            if not isinstance(part, (*_SUMS, *_EXTREMES)):
                self.compiler.refuse(part, f"{part.key}() is not supported: there are count, sum, avg, min and max")
            if part.find(exp.Distinct):
                self.compiler.refuse(part, "count(DISTINCT …): a query with SELECT DISTINCT, and one over it")
            if not isinstance(part.this, exp.Star):
                self.compiler.require_kind(part.this, "number" if isinstance(part, (exp.Sum, exp.Avg)) else None)
            if isinstance(part, _EXTREMES) and self.compiler.kind_of(part.this) == "vertex":
                self.compiler.refuse(part, f"{self.compiler.show_expression(part)}: vertices with names have no order")
        self.compiler.require_kind(node.copy().transform(_stand_in))

    def sum_text(self, part: exp.AggFunc) -> str:
        """Return a sum as Spark SQL over the measures that it is made of."""
        if isinstance(part, exp.Count) and isinstance(part.this, (exp.Star, exp.Literal)):
            return ROWS
        texts = [node.sql(dialect="spark") for node in self.amounts.values()]
        text = part.this.sql(dialect="spark")
        place = texts.index(text) if text in texts else len(texts)
        column, count, total = f"x{place}", f"m{2 * place + 1}", f"m{2 * place + 2}"
        self.amounts.setdefault(column, part.this)
        if isinstance(part, _EXTREMES):
            self.measures.setdefault(f"{part.key}{place}", Measure(amount=column, extreme=part.key))
            return f"{part.key}{place}"
        self.measures.setdefault(count, Measure(counted_column=column))
        if isinstance(part, exp.Count):
            return count
        self.measures.setdefault(total, Measure(amount=column, counted_column=column))
        value = total if isinstance(part, exp.Sum) else f"CAST({total} AS DOUBLE) / {count}"
        return f"CASE WHEN {count} > 0 THEN {value} END"


class _CoreBuilder:
    """The conditions of a query, sorted by what they become: windows, filters of one atom, equalities, and the rest."""

    def __init__(self, compiler: _Compiler, form: _Form, outputs: Mapping[str, exp.Expr]) -> None:
        self.compiler, self.form = compiler, form
        self.outputs = {name: _without_columns(node, form.nulled) for name, node in outputs.items()}
        self.windows: dict[str, tuple[int, int]] = {}
        self.filters: dict[str, list[exp.Expr]] = {}
        self.equal: dict[tuple[str, str], tuple[str, str]] = {}  # column → another one of its class
        self.rest: list[exp.Expr] = []
        self.variables: dict[tuple[str, str], str] = {}
        for condition in form.conditions:
            self.add_condition(condition)

    def add_condition(self, condition: exp.Expr) -> None:
        columns = list(condition.find_all(exp.Column))
        owners = {column.table for column in columns}
        if any(self.is_age(column) for column in columns):
            self.add_window(condition)
        elif len(owners) == 1:
            self.filters.setdefault(owners.pop(), []).append(condition)
        elif isinstance(condition, exp.EQ) and all(
            isinstance(side, exp.Column) for side in (condition.this, condition.expression)
        ):
            self.add_equality(condition)
        else:
            self.rest.append(condition)

    def is_age(self, column: exp.Column) -> bool:
        relation = self.compiler.sources[column.table]
        return bool(column.name == AGE and relation == "landed")

    def add_window(self, condition: exp.Expr) -> None:
        window = read_window(condition)
        if window is None:
            self.compiler.refuse(condition, "age can only be compared with a whole number, as in age < 7")
        alias, least, end = window
        low, high = self.windows.get(alias, (0, FOREVER))
        self.windows[alias] = max(low, least), min(high, end)

    def add_equality(self, condition: exp.EQ) -> None:
        left, right = ((side.table, side.name) for side in (condition.this, condition.expression))
        types = {self.compiler.types[side] for side in (left, right)}
        if types & {"double"} or len(types) > 1:
            self.compiler.refuse(
                condition, f"a join of {' and '.join(sorted(types))} columns: join whole numbers or texts"
            )
        self.equal[self.class_of(left)] = self.class_of(right)

    def class_of(self, column: tuple[str, str]) -> tuple[str, str]:
        while (other := self.equal.get(column, column)) != column:
            column = other
        return column

    def variable(self, column: tuple[str, str]) -> str:
        return self.variables.setdefault(self.class_of(column), f"v{len(self.variables)}")

    def variables_of(self, node: exp.Expr) -> tuple[str, ...]:
        columns = node.find_all(exp.Column)
        return tuple(dict.fromkeys(self.variable((column.table, column.name)) for column in columns))

    def bind(self, node: exp.Expr) -> str:
        """Return an expression over the variables, for Spark."""
        bound = node.copy().transform(
            lambda part: exp.column(self.variable((part.table, part.name))) if isinstance(part, exp.Column) else part
        )
        return str(bound.sql(dialect="spark"))

    def build(self) -> Core:
        atoms = tuple(self.build_atom(alias, self.used_columns(alias)) for alias in self.form.aliases)
        self.require_joined(atoms)
        less: list[tuple[str, str]] = []
        different: list[tuple[str, str]] = []
        conditions: dict[str, tuple[str, ...]] = {}
        for condition in self.rest:
            sides = [condition.this, condition.args.get("expression")]
            if isinstance(condition, (exp.LT, exp.GT, exp.NEQ)) and all(isinstance(side, exp.Column) for side in sides):
                x, y = (self.variable((side.table, side.name)) for side in sides)
                pairs = different if isinstance(condition, exp.NEQ) else less
                pairs.append((y, x) if isinstance(condition, exp.GT) else (x, y))
            else:
                conditions[self.bind(condition)] = self.variables_of(condition)
        outputs = {name: self.bind(node) for name, node in self.outputs.items()}
        return Core(atoms, tuple(less), tuple(different), conditions, outputs, self.form.sign)

    def used_columns(self, alias: str) -> list[str]:
        """Return the columns of an atom that are joined, returned or compared with those of others.

        Their order is that of the relation, so that atoms with the same columns share a view of it.
        """
        nodes = chain(self.outputs.values(), self.rest)
        columns = [column for node in nodes for column in node.find_all(exp.Column)]
        for column in columns:
            if self.is_age(column):
                self.compiler.refuse(column, "age can only be compared with a whole number, as in age < 7")
        joined = [name for owner, name in (*self.equal, *self.equal.values()) if owner == alias]
        used = {*(column.name for column in columns if column.table == alias), *joined}
        own = [name for owner, name in self.compiler.types if owner == alias]
        return [name for name in own if name in used] or own[:1]  # an atom without such columns only multiplies

    def build_atom(self, alias: str, used: list[str]) -> QueryAtom:
        filters = [self.bind_filter(node) for node in self.filters.get(alias, ())]
        where = " AND ".join(f"({text})" for text in filters) or None
        columns = tuple(self.compiler.names[alias, name] for name in used)
        terms = tuple(self.variable((alias, name)) for name in used)
        return QueryAtom(self.compiler.sources[alias], columns, terms, where, self.windows.get(alias))

    def bind_filter(self, node: exp.Expr) -> str:
        """Return a condition on an atom's own columns, for Spark."""

        def replace(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Column):
                return part
            return exp.column(exp.to_identifier(self.compiler.names[part.table, part.name], quoted=True))

        return str(node.copy().transform(replace).sql(dialect="spark"))

    def require_joined(self, atoms: tuple[QueryAtom, ...]) -> None:
        """Refuse an atom that no equality joins with the others."""
        reached, left = set(atoms[0].terms), dict(zip(self.form.aliases, atoms, strict=True))
        while near := [alias for alias, atom in left.items() if reached & set(atom.terms)]:
            for alias in near:
                reached |= set(left.pop(alias).terms)
        for alias in left:
            self.compiler.refuse(None, f"{alias} is joined by no equality: JOIN … ON {alias}.… = …")


def split_conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that an AND joins."""
    node = condition.unnest()
    if isinstance(node, exp.And):
        yield from split_conjuncts(node.this)
        yield from split_conjuncts(node.expression)
    else:
        yield node


def _conjuncts_of(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    return iter(()) if condition is None else split_conjuncts(condition)


def _extend(form: _Form, alias: str, conditions: Iterable[exp.Expr], sign: int) -> _Form:
    """Return a form with a further atom and its conditions."""
    return replace(form, sign=sign, aliases=(*form.aliases, alias), conditions=(*form.conditions, *conditions))


def _without_columns(node: exp.Expr, nulled: frozenset[str]) -> exp.Expr:
    """Return an expression with nulls in the place of the columns of some atoms."""
    return node.copy().transform(
        lambda part: exp.Null() if isinstance(part, exp.Column) and part.table in nulled else part
    )


def read_window(condition: exp.Expr) -> tuple[str, int, int] | None:
    """Return the alias and the ages `[least, end)` of a condition such as `age < 7`; None: it has another form."""
    if isinstance(condition, exp.Between) and isinstance(condition.this, exp.Column):
        low, high = _whole_number(condition.args["low"]), _whole_number(condition.args["high"])
        return None if low is None or high is None else (condition.this.table, low, high + 1)
    mirrored: dict[type[exp.Expr], type[exp.Expr]] = {
        exp.LT: exp.GT,
        exp.GT: exp.LT,
        exp.LTE: exp.GTE,
        exp.GTE: exp.LTE,
        exp.EQ: exp.EQ,
    }
    kind = type(condition)
    if kind not in mirrored:
        return None
    left, right = condition.this, condition.args["expression"]
    if isinstance(right, exp.Column):
        left, right, kind = right, left, mirrored[kind]
    number = _whole_number(right)
    if number is None or not isinstance(left, exp.Column):
        return None
    ages: Mapping[type[exp.Expr], tuple[int, int]] = {
        exp.LT: (0, number),
        exp.LTE: (0, number + 1),
        exp.GT: (number + 1, FOREVER),
        exp.GTE: (number, FOREVER),
        exp.EQ: (number, number + 1),
    }
    return (left.table, *ages[kind])


def _whole_number(node: exp.Expr) -> int | None:
    return int(node.name) if isinstance(node, exp.Literal) and node.name.isdigit() and not node.is_string else None


def _stand_in(part: exp.Expr) -> exp.Expr:
    """Return an expression of the same kind in the place of an aggregate."""
    if isinstance(part, _EXTREMES):
        argument: exp.Expr = part.this.copy()
        return argument
    return exp.Literal.number(1) if isinstance(part, exp.AggFunc) else part


def explain_unsteadiness(node: exp.Expr) -> str:
    """Return the words for a function that has another value on the next run, and none for others."""
    unsteady = ("current", "now", "rand", "uuid", "today", "localtime")
    name = node.name if isinstance(node, exp.Anonymous) else node.key
    return ": it has another value on the next run" if name.lower().startswith(unsteady) else ""


def _double_quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
