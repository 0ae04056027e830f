// Requests to this server, with the token of this tab. The token is in sessionStorage and goes out in one header only;
// no cookie is set or sent.

const KEY = "quire-token";
const DEADLINE_MS = 60000;
const EVENT_CHARACTERS_MAX = 8 << 20;

/** An answer that is no success. `status` 0: there was none. */
export class ApiError extends Error {
  constructor(status, reason, path) {
    super(reason);
    this.status = status;
    this.path = path;
  }
}

export const token = {
  get() { return sessionStorage.getItem(KEY) || ""; },
  set(value) {
    if (value) sessionStorage.setItem(KEY, value); else sessionStorage.removeItem(KEY);
    document.dispatchEvent(new CustomEvent("token"));
  },
};

function headers(extra) {
  const found = { "Quire-Console": "1", Accept: "application/json", ...extra };
  const value = token.get();
  if (value) found.Authorization = value.startsWith("Basic ") ? value : `Bearer ${value}`;
  return found;
}

async function request(method, path, body, signal) {
  const deadline = AbortSignal.timeout(DEADLINE_MS);
  const init = {
    method,
    headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }),
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
    signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
  };
  if (body !== undefined) init.body = JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    const late = error.name === "TimeoutError";
    throw new ApiError(0, late ? "The server did not answer in time." : "The server cannot be reached.", path);
  }
  const text = await answer.text();
  let value = null;
  if (text) {
    try { value = JSON.parse(text); } catch { value = text; }
  }
  if (!answer.ok) throw new ApiError(answer.status, value?.reason || `Status ${answer.status}`, path);
  return value;
}

/** Return the JSON at a path; null without a body. Throws ApiError. */
export const get = (path, signal) => request("GET", path, undefined, signal);

/** Send a change; return the JSON of the answer, null without a body. Throws ApiError. */
export const send = (method, path, body, signal) => request(method, path, body, signal);

/**
 * Follow server-sent events until `signal` is aborted; connects again after a second, then slower.
 * on.data(value), on.problem(text or ApiError), on.open(): the stream is there (again).
 */
export async function follow(path, on, signal) {
  let wait = 1000;
  while (!signal.aborted) {
    try {
      const answer = await fetch(path, {
        headers: headers({ Accept: "text/event-stream" }), credentials: "omit", cache: "no-store", redirect: "error", signal,
      });
      if (!answer.ok) {
        const found = await answer.json().catch(() => null);
        const error = new ApiError(answer.status, found?.reason || `Status ${answer.status}`, path);
        on.problem?.(error);
        if ([401, 403, 404].includes(answer.status)) return;
        throw error;
      }
      on.open?.();
      wait = 1000;
      await read(answer.body, on, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) on.problem?.(new ApiError(0, "The server cannot be reached; trying again.", path));
    }
    await pause(wait, signal);
    wait = Math.min(wait * 2, 15000);
  }
}

async function read(body, on, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done || signal.aborted) return;
    buffer += value;
    if (buffer.length > EVENT_CHARACTERS_MAX) throw new Error("an event is too long");
    for (let end = buffer.indexOf("\n\n"); end >= 0; end = buffer.indexOf("\n\n")) {
      dispatch(buffer.slice(0, end), on);
      buffer = buffer.slice(end + 2);
    }
  }
}

function dispatch(text, on) {
  let name = "message";
  const data = [];
  for (const line of text.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (!data.length) return;
  const value = JSON.parse(data.join("\n"));
  if (name === "problem") on.problem?.(value.reason); else on.data(value);
}

/** Wait; ends at once when `signal` is aborted. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

/** Join escaped parts to a path: at`/admin/v2/${x}`. */
export function at(texts, ...parts) {
  return texts.reduce((path, text, place) => path + text + (place < parts.length ? encodeURIComponent(parts[place]) : ""), "");
}
