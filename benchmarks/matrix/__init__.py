"""The kill matrix: a job with effects, money, messages and an approval, each fault at each event of
its history, and an outside witness.

`make -C benchmarks matrix`. `witness` is another process: the model, the service behind the tools,
and the record of what really happened. `script` is what its model says. `judge` compares the record
with what a job was to do. These three know nothing of Perdure: any system can be judged by them.
"""
