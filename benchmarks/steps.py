"""What a step costs: `python benchmarks/steps.py [STEPS] [BYTES]`.

One turn of so many steps on the embedded server, each with a tool result of so many bytes and a scripted model that answers at once. Printed are
milliseconds and CPU a step, the first 50 steps against the last 50, and what history weighs.
"""

import asyncio
import sys
import time

from perdure import Agent, Step, tool
from perdure.testing import ScriptedModel, call, calls, local_runtime, says


async def measure(steps: int, result_bytes: int) -> str:
    @tool(read_only=True)
    def fetch(number: int) -> str:
        return "x" * result_bytes

    agent = Agent(name="bench", model="scripted:bench", instructions="p" * 20_000, tools=[fetch], max_iterations="unlimited")
    model = ScriptedModel(*[calls(call("fetch", number=number)) for number in range(steps)], says("done"))
    stamps: list[float] = []

    def stamp(_: Step) -> None:
        stamps.append(time.perf_counter())

    async with local_runtime(agent, model=model) as client:
        began, cpu = time.perf_counter(), time.process_time()
        turn = await client.start(agent, "go")
        report = await turn.result(on_step=stamp)
        took, used = time.perf_counter() - began, time.process_time() - cpu
        history = await client.temporal.get_workflow_handle(turn.id).fetch_history()
    size = sum(event.ByteSize() for event in history.events)
    said = sum(len(message.model_dump_json()) for message in report.messages)
    edge = min(50, steps // 2)
    first, last = stamps[edge] - stamps[0], stamps[-1] - stamps[-1 - edge]
    return (
        f"{steps} steps of {result_bytes} bytes: {1000 * took / steps:.1f} ms and {1000 * used / steps:.1f} ms CPU a step, "
        f"last {edge} / first {edge} = {last / first:.2f}, history {size / 1e6:.2f} MB = {size / said:.2f} x transcript"
    )


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    print(asyncio.run(measure(*[*numbers, *(200, 5_000)[len(numbers) :]])))
