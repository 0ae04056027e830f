"""`quire admin`: clusters, tenants, namespaces, topics and the rest of the admin REST, from a terminal.

`verbs` and `table` say what there is (pure), `commands` makes typer's commands of it, `running` runs one, and
`connection` is the only module that speaks to a broker.
"""
