/** The page: conversations on the left, one of them in the middle, a field to go on with it. */

import * as api from "./api.js";
import { copy, make, show } from "./markdown.js";
import * as speech from "./speech.js";
import * as store from "./store.js";

const at = (id) => document.getElementById(id);
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];

let all = store.conversations();
let now = null; // the conversation that is shown; null: one that has not begun
let settings = store.settings();
let running = null; // {controller, conversation} while an answer is drawn
let follows = true; // whether the log stays at its end

// Conversations

function title(text) {
  const line = text.trim().split("\n")[0];
  return line.length > 60 ? `${line.slice(0, 59)}…` : line || "…";
}

function keep() {
  if (!store.keep(all)) notice("This browser has no room to keep the conversation.");
}

function choose(conversation) {
  now = conversation;
  follows = true;
  drawList();
  drawLog();
  drawState();
  side(false);
}

function forget(conversation) {
  if (!confirm(`Delete “${conversation.title}”?`)) return;
  if (running?.conversation === conversation) running.controller.abort();
  all = all.filter((one) => one !== conversation);
  keep();
  choose(now === conversation ? null : now);
  at("new").focus();
}

function drawList() {
  at("list").replaceChildren(
    ...all.map((conversation) => {
      const open = make("button", { type: "button", className: "open" }, conversation.title);
      if (conversation === now) open.setAttribute("aria-current", "true");
      open.addEventListener("click", () => {
        choose(conversation);
        at("ask").focus();
      });
      const remove = make("button", { type: "button", className: "quiet delete" }, "✕");
      remove.setAttribute("aria-label", `Delete ${conversation.title}`);
      remove.addEventListener("click", () => forget(conversation));
      return make("li", {}, open, remove);
    }),
  );
}

// Messages

function drawLog() {
  const log = at("log");
  const messages = now?.messages ?? [];
  if (!messages.length) {
    log.replaceChildren(
      make("div", { className: "empty" }, make("h1", {}, "What would you like to know?")),
    );
    return;
  }
  log.replaceChildren(...messages.map((message, i) => drawn(message, i === messages.length - 1)));
  toEnd();
}

/** One message; the last has what goes on from there. */
function drawn(message, last) {
  const mine = message.role === "user";
  const who = make("h2", { className: "hidden" }, mine ? "You" : "Model");
  const body = make("div", { className: "body" });
  const article = make("article", { className: message.role }, who);
  if (message.thoughts) article.append(drawnThoughts(message));
  if (mine) body.append(message.content);
  else show(body, message.content);
  if (message.content) article.append(body);
  if (message.error) {
    article.append(make("p", { className: "error", role: "alert" }, message.error));
  }
  if (message === running?.message) {
    article.append(make("p", { className: "waiting", role: "status" }, waiting(message)));
  } else {
    article.append(drawnFoot(message, mine, last));
  }
  return article;
}

function waiting(message) {
  if (message.content) return "Writing…";
  return message.thoughts ? "Thinking…" : "Reading…";
}

function drawnThoughts(message) {
  const thinking = message === running?.message && !message.content;
  const seconds = message.thoughtSeconds;
  const details = make("details", { className: "thoughts", open: message.unfolded === true });
  const body = make("div", { className: "body" });
  show(body, message.thoughts);
  details.append(make("summary", {}, thinking ? "Thinking…" : thought(seconds)), body);
  details.addEventListener("toggle", () => (message.unfolded = details.open));
  return details;
}

function thought(seconds) {
  return seconds >= 0.1 ? `Thought for ${seconds.toFixed(1)} s` : "Thought";
}

function drawnFoot(message, mine, last) {
  const foot = make("footer");
  if (message.content) {
    const button = make("button", { type: "button", className: "quiet" }, "Copy");
    button.setAttribute("aria-label", mine ? "Copy your message" : "Copy the answer");
    button.addEventListener("click", () => copy(message.content, button));
    foot.append(button);
    if (!mine && speech.speaks()) {
      const listen = make("button", { type: "button", className: "quiet" }, "Listen");
      listen.setAttribute("aria-label", "Listen to the answer");
      listen.addEventListener("click", () => speech.open(message.content));
      foot.append(listen);
    }
  }
  if (last) {
    const again = mine || message.error ? "Try again" : "Regenerate";
    const button = make("button", { type: "button", className: "quiet" }, again);
    button.addEventListener("click", regenerate);
    button.disabled = running !== null;
    foot.append(button);
  }
  const rates = ratesOf(message);
  if (rates) foot.append(make("span", { className: "small rates" }, rates));
  return foot;
}

function ratesOf(message) {
  const parts = [];
  if (message.end === "length") parts.push("cut off at the most tokens");
  if (message.end === "stopped") parts.push("stopped");
  const times = message.timings;
  if (times) {
    const rate = times.predicted_n > 1 ? ` at ${times.predicted_per_second.toFixed(1)}/s` : "";
    parts.push(`${times.predicted_n} tokens${rate}`);
    const cached = times.cache_n ? `, ${times.cache_n} known before` : "";
    parts.push(`read ${times.prompt_n} in ${(times.prompt_ms / 1000).toFixed(2)} s${cached}`);
  }
  if (message.model && at("model").options.length > 1) parts.push(message.model);
  return parts.join(" · ");
}

function toEnd() {
  const log = at("log");
  if (follows) log.scrollTop = log.scrollHeight;
}

// Asking

function bodyOf(conversation) {
  const told = conversation.messages
    .filter((message) => message.content)
    .map(({ role, content }) => ({ role, content }));
  const messages = settings.system ? [{ role: "system", content: settings.system }, ...told] : told;
  const body = { model: at("model").value, messages };
  for (const name of NUMBERS) {
    if (settings[name] !== undefined) body[name] = settings[name];
  }
  if (settings.thinking) {
    body.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  }
  return body;
}

async function ask(conversation) {
  const controller = new AbortController();
  const body = bodyOf(conversation);
  const message = { role: "assistant", content: "", model: body.model };
  conversation.messages.push(message);
  running = { controller, conversation, message };
  follows = true;
  let begun = null; // to think
  notice("");
  drawState();
  if (conversation === now) drawLog();
  let frame = 0;
  const draw = () => {
    frame = 0;
    if (conversation === now) redraw(message);
  };
  try {
    for await (const piece of api.answer(body, store.key(), controller.signal)) {
      if (piece.thought) {
        begun ??= performance.now();
        message.thoughts = (message.thoughts ?? "") + piece.thought;
      }
      if (piece.content) {
        if (message.thoughts && message.thoughtSeconds === undefined) {
          message.thoughtSeconds = (performance.now() - begun) / 1000;
        }
        message.content += piece.content;
      }
      if (piece.end) message.end = piece.end;
      if (piece.timings) message.timings = piece.timings;
      frame ||= requestAnimationFrame(draw);
    }
  } catch (error) {
    if (error.name === "AbortError") message.end = "stopped";
    else message.error = error.message;
    if (error.status === 401) openSettings("set-key");
  } finally {
    cancelAnimationFrame(frame);
    running = null;
    delete message.unfolded;
    keep();
    drawState();
    if (conversation === now) {
      const last = at("log").lastElementChild;
      const focused = last?.contains(document.activeElement);
      const open = last?.querySelector("details")?.open;
      const whole = drawn(message, true);
      if (open) whole.querySelector("details").open = true;
      last?.replaceWith(whole);
      if (focused) at("ask").focus();
      toEnd();
    }
  }
}

/** What is new of a message that is being drawn. */
function redraw(message) {
  const article = at("log").lastElementChild;
  const status = article?.querySelector(".waiting");
  if (!status) return;
  if (message.thoughts) {
    const details = article.querySelector("details");
    if (details) {
      show(details.querySelector(".body"), message.thoughts);
      const said = message.content ? thought(message.thoughtSeconds) : "Thinking…";
      details.firstChild.textContent = said;
    } else {
      article.insertBefore(drawnThoughts(message), article.children[1]);
    }
  }
  if (message.content) {
    let body = article.querySelector(":scope > .body");
    if (!body) {
      body = make("div", { className: "body" });
      article.insertBefore(body, status);
    }
    show(body, message.content);
  }
  const said = waiting(message);
  if (status.textContent !== said) status.textContent = said;
  toEnd();
}

function send() {
  const text = at("ask").value.trim();
  if (!text || running || !at("model").value) return;
  if (now === null) {
    now = { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), title: title(text), messages: [] };
  }
  all = [now, ...all.filter((one) => one !== now)];
  now.messages.push({ role: "user", content: text });
  at("ask").value = "";
  grow();
  keep();
  drawList();
  ask(now);
}

function regenerate() {
  if (running || now === null) return;
  if (now.messages.at(-1).role === "assistant") now.messages.pop();
  ask(now);
  at("ask").focus();
}

// The rest of the page

function drawState() {
  at("stop").hidden = running === null;
  at("send").hidden = running !== null;
  at("send").disabled = !at("model").value;
}

function notice(text) {
  at("notice").textContent = text;
  at("notice").hidden = !text;
}

function grow() {
  const field = at("ask");
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight + 2, 240)}px`;
}

function side(open) {
  document.body.classList.toggle("side-open", open);
  at("shade").hidden = !open;
  at("open-side").setAttribute("aria-expanded", String(open));
}

async function findModels() {
  const select = at("model");
  try {
    const every = await api.models(store.key());
    const speakers = await speech.find();
    const ids = every.filter((id) => !speakers.includes(id));
    select.replaceChildren(...ids.map((id) => make("option", { value: id }, id)));
    if (ids.includes(settings.model)) select.value = settings.model;
    if (ids.length) notice("");
    else if (speakers.length) notice("The server offers no model that writes; “Speak” speaks a text.");
    else notice("The server offers no model.");
    drawLog();
  } catch (error) {
    notice(error.message);
    if (error.status === 401) openSettings("set-key");
  }
  drawState();
}

function openSettings(focus) {
  if (at("settings").open) return;
  at("set-system").value = settings.system ?? "";
  at("set-thinking").value = settings.thinking ?? "";
  at("set-key").value = store.key();
  for (const name of NUMBERS) at(`set-${name}`).value = settings[name] ?? "";
  at("settings").showModal();
  if (focus) at(focus).focus();
}

function takeSettings() {
  const key = at("set-key").value.trim();
  const changed = key !== store.key();
  const values = { model: settings.model };
  if (at("set-system").value.trim()) values.system = at("set-system").value.trim();
  if (at("set-thinking").value) values.thinking = at("set-thinking").value;
  for (const name of NUMBERS) {
    const value = at(`set-${name}`).valueAsNumber;
    if (Number.isFinite(value)) values[name] = value;
  }
  settings = values;
  store.keepSettings(settings);
  store.keepKey(key);
  if (changed) findModels();
}

at("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
at("ask").addEventListener("input", grow);
at("ask").addEventListener("keydown", (event) => {
  // Enter within an input method confirms a word.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || at("settings").open || at("speech").open) return;
  if (document.body.classList.contains("side-open")) {
    side(false);
    at("open-side").focus();
  } else {
    running?.controller.abort();
  }
});
at("stop").addEventListener("click", () => {
  running?.controller.abort();
  at("ask").focus();
});
at("new").addEventListener("click", () => {
  choose(null);
  at("ask").focus();
});
at("model").addEventListener("change", () => {
  settings.model = at("model").value;
  store.keepSettings(settings);
  drawState();
});
at("open-settings").addEventListener("click", () => openSettings());
at("settings").addEventListener("close", takeSettings);
at("reset").addEventListener("click", () => {
  for (const field of at("settings").querySelectorAll("input, textarea, select")) field.value = "";
});
at("open-side").addEventListener("click", () => {
  side(true);
  at("new").focus();
});
for (const id of ["close-side", "shade"]) {
  at(id).addEventListener("click", () => {
    side(false);
    at("open-side").focus();
  });
}
at("log").addEventListener("scroll", () => {
  const log = at("log");
  follows = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
});
// What another tab kept is not overwritten by what this one knew.
addEventListener("storage", () => {
  if (running) return;
  const id = now?.id;
  all = store.conversations();
  now = all.find((one) => one.id === id) ?? null;
  drawList();
  drawLog();
});

drawList();
drawLog();
drawState();
findModels();
at("ask").focus();
