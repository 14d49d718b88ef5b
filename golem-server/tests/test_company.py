"""Many clients at once, some of which leave: every answer is as if it had been alone."""

from __future__ import annotations

import asyncio
import random

import openai
import pytest

QUESTIONS = [f"What is {a} + {b}?" for a in (3, 12, 20) for b in (7, 9)] + ["What is a river?"]
CLIENTS = 16
ROUNDS = 4


@pytest.mark.parametrize("draft", ["off", "ngram"])
async def test_answers_in_company_are_those_alone(trained_model, serve, draft):
    rng = random.Random(5)
    async with serve(f"m={trained_model}", context=512, max_sequences=4, draft=draft) as server:
        url = f"{server.url}/v1"
        # By default the client gives up where it cannot connect within 5 seconds.
        arguments = {"api_key": "-", "max_retries": 0, "timeout": 600}
        async with openai.AsyncOpenAI(base_url=url, **arguments) as client:

            async def ask(number, stream=False):
                return await client.chat.completions.create(
                    model="m",
                    messages=[{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}],
                    temperature=0.9,
                    seed=number,
                    max_tokens=24,
                    stream=stream,
                )

            async def streamed(number, leaves_after):
                """The text, or None of an answer that was left."""
                text = ""
                async with await ask(number, stream=True) as stream:
                    async for chunk in stream:
                        if leaves_after is not None and len(text) >= leaves_after:
                            return None
                        text += chunk.choices[0].delta.content or ""
                return text

            alone = {}
            for number in range(20):
                answer = await ask(number)
                alone[number] = answer.choices[0].message.content
            engine = server.models.loaded()[0].model.engine
            pages = engine.stats().groups[0].pages

            async def visit():
                for _ in range(ROUNDS):
                    number = rng.randrange(20)
                    leaves_after = rng.randrange(12) if rng.random() < 1 / 3 else None
                    if leaves_after == 0:  # even before there is an answer
                        task = asyncio.create_task(ask(number))
                        await asyncio.sleep(rng.random() / 50)
                        task.cancel()
                        continue
                    text = await streamed(number, leaves_after)
                    assert text in (None, alone[number])

            await asyncio.gather(*(visit() for _ in range(CLIENTS)))
            for _ in range(200):
                if not engine.stats().running and not engine.stats().waiting:
                    break
                await asyncio.sleep(0.01)
            assert (engine.stats().running, engine.stats().waiting) == (0, 0)
            group = engine.stats().groups[0]
            assert group.free + group.idle == pages
