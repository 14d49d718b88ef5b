/** What the browser keeps: conversations and settings. */

const CONVERSATIONS = "golem.conversations";
const SETTINGS = "golem.settings";
const KEY = "golem.key";
const MOST = 200; // conversations

function read(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** All conversations, the latest first: `{id, title, messages: [{role, content, …}]}`. */
export function conversations() {
  const found = read(CONVERSATIONS, []);
  return Array.isArray(found) ? found.filter((one) => Array.isArray(one?.messages)) : [];
}

/** Keeps them; false where the browser has no room or keeps nothing. */
export function keep(all) {
  try {
    localStorage.setItem(CONVERSATIONS, JSON.stringify(all.slice(0, MOST)));
    return true;
  } catch {
    return false;
  }
}

export function settings() {
  const found = read(SETTINGS, {});
  return typeof found === "object" && found !== null ? found : {};
}

export function keepSettings(values) {
  try {
    localStorage.setItem(SETTINGS, JSON.stringify(values));
  } catch {
    // They hold until the page is left.
  }
}

/** The API key, which is forgotten with the tab. */
export function key() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function keepKey(value) {
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    // As above.
  }
}
