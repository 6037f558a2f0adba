"""The same episodes on other frameworks: `make -C benchmarks effects-peers`.

`jobs` has the tools and the scripted model, whatever the framework; `on_*` put them into one each,
and `temporal` has what two of them share. `rows` names the rows of the table.
"""
