/** The server: its models, and answers as they are drawn. */

/** What went wrong, as the server or the network says it; `status` is 0 without an answer. */
export class Failure extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

async function asked(path, key, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The server cannot be reached.");
  }
  if (response.ok) return response;
  let message = `The server answered ${response.status}.`;
  try {
    const said = await response.json();
    message = said.detail ?? said.error.message;
  } catch {
    // What answered is not golem: a proxy, perhaps.
  }
  const wait = response.headers.get("retry-after");
  if (response.status === 429 && wait) message += ` Try again in ${wait} s.`;
  throw new Failure(message, response.status);
}

/** The ids of the models that may be asked. */
export async function models(key) {
  const response = await asked("v1/models", key);
  return (await response.json()).data.map((model) => model.id);
}

/** The ids of the models that speak. */
export async function speakers(key) {
  const response = await asked("v1/audio/models", key);
  return (await response.json()).data.map((model) => model.id);
}

/** The voices of a model: `{data: [{id}], default, clones, sample_rate}`; loads it. */
export async function voices(model, key) {
  const response = await asked(`v1/audio/voices?model=${encodeURIComponent(model)}`, key);
  return response.json();
}

/** Speaks a text and gives the bytes of the sound as they come. */
export async function* speak(body, key, signal) {
  const response = await asked("v1/audio/speech", key, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  yield* bytesOf(response);
}

/** As `speak`, by the voice of a recording, which is a file. */
export async function* speakAs(recording, text, model, key, signal) {
  const form = new FormData();
  form.append("text", text);
  form.append("model", model);
  form.append("voice_wav", recording);
  const response = await asked("tts", key, { method: "POST", body: form, signal });
  let head = 44; // of WAV, before the samples
  for await (const bytes of bytesOf(response)) {
    if (head >= bytes.length) head -= bytes.length;
    else {
      yield bytes.subarray(head);
      head = 0;
    }
  }
}

async function* bytesOf(response) {
  const reader = response.body.getReader();
  try {
    while (true) {
      const { value, done } = await reader.read();
      if (done) return;
      yield value;
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The connection broke off.");
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Asks for an answer and gives its pieces: `{content}`, `{thought}`, `{end}` with the reason,
 * `{timings}`. Ends early when `signal` says so, by throwing an AbortError.
 */
export async function* answer(body, key, signal) {
  const response = await asked("v1/chat/completions", key, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  let whole = false;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") {
      whole = true;
      break;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Failure(chunk.error.message, response.status);
    const choice = chunk.choices?.[0];
    if (choice?.delta?.reasoning_content) yield { thought: choice.delta.reasoning_content };
    if (choice?.delta?.content) yield { content: choice.delta.content };
    if (choice?.finish_reason) yield { end: choice.finish_reason };
    if (chunk.timings) yield { timings: chunk.timings };
  }
  if (!whole) throw new Failure("The connection broke off.");
}

/** The data of server-sent events. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    while (true) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) yield line.slice(5).trim();
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The connection broke off.");
  } finally {
    reader.cancel().catch(() => {});
  }
}
