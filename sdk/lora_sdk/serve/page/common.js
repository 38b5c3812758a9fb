"use strict";
const at = (id) => document.getElementById(id);

/* An element. Strings in `content` become text, never markup. */
function make(tag, attributes = {}, ...content) {
  return filled(document.createElement(tag), attributes, content);
}

function draw(tag, attributes = {}, ...content) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, content);
}

function filled(made, attributes, content) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
}

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function number(value) {
  const digits = Math.abs(value) < 10 ? 1 : 0;
  return value.toLocaleString("en", {maximumFractionDigits: digits});
}

/* As 62K. */
function roughly(value) {
  return value.toLocaleString("en", {notation: "compact"});
}

function counted(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1023.5 && unit < units.length - 1) { value /= 1024; unit++; }
  const digits = unit && value < 100 ? 1 : 0;
  return `${Number(value.toFixed(digits))} ${units[unit]}`;
}

function duration(seconds) {
  const sizes = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]], parts = [];
  let left = Math.floor(seconds);
  for (const [unit, size] of sizes) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (parts.length || count || unit === "s") parts.push(count ? `${count} ${unit}` : "");
  }
  return parts.slice(0, 2).filter(Boolean).join(" ") || "0 s";
}

function wait(seconds) {
  return seconds < 1 ? `${number(1e3 * seconds)} ms` : `${Number(seconds.toPrecision(3))} s`;
}

function withKey(headers = {}) {
  const key = sessionStorage.getItem("key");
  return key ? {...headers, authorization: `Bearer ${key}`} : headers;
}
