/** The panel that speaks: a text, a voice or a recording of one, heard while it is made. */

import * as api from "./api.js";
import { make } from "./markdown.js";
import * as store from "./store.js";

const at = (id) => document.getElementById(id);

let speakers = []; // ids of the models that speak
let rate = 24000; // samples a second of the model that is chosen
let running = null; // {controller, sound} while a text is spoken
let saved = null; // the address of the last sound

/** Whether anything can be heard here. */
export function speaks() {
  return speakers.length > 0;
}

/** Finds out who speaks, and gives their ids; shows the panel's button where anybody does. */
export async function find() {
  speakers = await api.speakers(store.key());
  at("speech-model").replaceChildren(...speakers.map((id) => make("option", { value: id }, id)));
  at("open-speech").hidden = !speaks();
  return speakers;
}

/** Opens the panel, with a text where there is one. */
export async function open(text) {
  if (text !== undefined) at("speech-text").value = text;
  if (!at("speech").open) at("speech").showModal();
  at("speech-text").focus();
  await findVoices();
}

async function findVoices() {
  const select = at("speech-voice");
  const model = at("speech-model").value;
  if (!model || select.dataset.model === model) return;
  say("Loading the model…");
  try {
    const found = await api.voices(model, store.key());
    if (at("speech-model").value !== model) return;
    rate = found.sample_rate;
    const names = found.data.map((voice) => voice.id);
    select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    if (!names.length) select.append(make("option", { value: "" }, "the model's own"));
    if (found.default) select.value = found.default;
    at("speech-recording").disabled = !found.clones;
    select.dataset.model = model;
    say("");
  } catch (error) {
    say(error.message);
  }
}

/** Plays samples as they come, each piece after the one before. */
class Sound {
  constructor() {
    this.context = new AudioContext();
    this.next = 0;
    this.pieces = [];
    this.samples = 0;
    this.half = null; // the first byte of a sample that was cut in two
  }

  /** Takes 16-bit samples, little end first. */
  add(bytes) {
    if (this.half !== null) {
      const whole = new Uint8Array(bytes.length + 1);
      whole[0] = this.half;
      whole.set(bytes, 1);
      bytes = whole;
      this.half = null;
    }
    if (bytes.length % 2) {
      this.half = bytes.at(-1);
      bytes = bytes.slice(0, -1);
    }
    if (!bytes.length) return;
    this.pieces.push(bytes);
    const count = bytes.length / 2;
    this.samples += count;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const buffer = this.context.createBuffer(1, count, rate);
    const channel = buffer.getChannelData(0);
    for (let i = 0; i < count; i++) channel[i] = view.getInt16(2 * i, true) / 32767;
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    this.next = Math.max(this.next, this.context.currentTime + 0.1);
    source.start(this.next);
    this.next += buffer.duration;
  }

  get seconds() {
    return this.samples / rate;
  }

  /** Seconds until all of it was heard. */
  get left() {
    return Math.max(0, this.next - this.context.currentTime);
  }

  /** All that came, as a WAV file. */
  file() {
    const head = new DataView(new ArrayBuffer(44));
    const text = (place, word) => {
      for (let i = 0; i < 4; i++) head.setUint8(place + i, word.charCodeAt(i));
    };
    const size = 2 * this.samples;
    for (const [place, word] of [[0, "RIFF"], [8, "WAVE"], [12, "fmt "], [36, "data"]]) text(place, word);
    for (const [place, value] of [[4, 36 + size], [16, 16], [24, rate], [28, 2 * rate], [40, size]]) {
      head.setUint32(place, value, true);
    }
    for (const [place, value] of [[20, 1], [22, 1], [32, 2], [34, 16]]) head.setUint16(place, value, true);
    return new Blob([head, ...this.pieces], { type: "audio/wav" });
  }
}

async function start() {
  const text = at("speech-text").value.trim();
  if (!text || running) return;
  const controller = new AbortController();
  const sound = new Sound();
  running = { controller, sound };
  const begun = performance.now();
  let first = null;
  drawState();
  say("Waiting for the first sound…");
  try {
    for await (const bytes of pieces(text, controller.signal)) {
      first ??= (performance.now() - begun) / 1000;
      sound.add(bytes);
      const spent = (performance.now() - begun) / 1000;
      say(`${sound.seconds.toFixed(1)} s, ${(sound.seconds / spent).toFixed(1)} times real time`);
    }
    const spent = (performance.now() - begun) / 1000;
    const pace = (sound.seconds / spent).toFixed(1);
    say(`${sound.seconds.toFixed(1)} s in ${spent.toFixed(1)} s (${pace} times real time), the first after ${(first ?? 0).toFixed(2)} s`);
    keep(sound);
    await heard(sound, controller.signal);
  } catch (error) {
    if (error.name === "AbortError") say("Stopped.");
    else say(error.message);
    if (sound.samples) keep(sound);
  } finally {
    sound.context.close();
    running = null;
    drawState();
  }
}

function pieces(text, signal) {
  const model = at("speech-model").value;
  const [recording] = at("speech-recording").files;
  if (recording) return api.speakAs(recording, text, model, store.key(), signal);
  const body = { model, input: text, response_format: "pcm" };
  if (at("speech-voice").value) body.voice = at("speech-voice").value;
  const seed = at("speech-seed").valueAsNumber;
  if (Number.isFinite(seed)) body.seed = seed;
  return api.speak(body, store.key(), signal);
}

/** Waits until all was heard, or `signal` ends it. */
async function heard(sound, signal) {
  while (sound.left > 0 && sound.context.state === "running") {
    if (signal.aborted) throw new DOMException("stopped", "AbortError");
    await new Promise((done) => setTimeout(done, 50));
  }
}

function keep(sound) {
  if (saved) URL.revokeObjectURL(saved);
  saved = URL.createObjectURL(sound.file());
  at("speech-save").href = saved;
  at("speech-save").hidden = false;
}

function say(text) {
  at("speech-said").textContent = text;
}

function drawState() {
  at("speech-start").hidden = running !== null;
  at("speech-stop").hidden = running === null;
}

export function stop() {
  running?.controller.abort();
}

at("open-speech").addEventListener("click", () => open());
at("speech-model").addEventListener("change", findVoices);
at("speech-form").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
at("speech-stop").addEventListener("click", stop);
at("speech-close").addEventListener("click", () => at("speech").close());
at("speech").addEventListener("close", stop);
