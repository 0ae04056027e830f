// Numbers, sizes and times as text.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];

/** 1234567 → "1,234,567"; null → "–". */
export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

/** 1234567 → "1.23M". */
export function short(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(value) >= size) return `${digits(value / size)}${unit}`;
  }
  return digits(value);
}

function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return size >= 10 ? value.toFixed(1) : value.toFixed(2).replace(/0$/, "");
}

/** Bytes; -1 and null → "–". */
export function bytes(value) {
  if (value === null || value === undefined || value < 0) return "–";
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  return `${digits(size)} ${UNITS[unit]}`;
}

/** A rate in messages or bytes per second; null → "–". */
export const rate = (value) => (value === null || value === undefined ? "–" : `${short(value)}/s`);
export const byteRate = (value) => (value ? `${bytes(value)}/s` : "0 B/s");

/** Seconds → "1h 5m". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || seconds < 0) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  const parts = [];
  let left = Math.round(seconds);
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
    const many = Math.floor(left / size);
    left -= many * size;
    if (many) parts.push(`${many}${unit}`);
    if (parts.length === 2) break;
  }
  return parts.join(" ") || "0s";
}

/** Milliseconds since 1970 → local date and time with milliseconds; 0 and null → "–". */
export function time(ms) {
  if (!ms || ms < 0) return "–";
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return String(ms);
  const two = (value, size = 2) => String(value).padStart(size, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} `
    + `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)}`;
}

/** Milliseconds since 1970 → "5m 3s ago". */
export const ago = (ms, now = Date.now()) => (ms ? `${duration(Math.max(0, now - ms) / 1000)} ago` : "–");
