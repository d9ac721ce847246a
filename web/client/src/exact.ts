// JSON whose integers stay what they are: one beyond 2^53 is a `bigint`. As `JSON` it would be rounded.

import { randomId } from "./wire.ts";

const MARK = `${randomId()}:`; // in no text of anybody's
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, "g");
const TOKEN = /"[^"\\]*(?:\\[^][^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

const isLong = (token: string): boolean => /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token));

function parse(text: string): unknown {
  const value: unknown = JSON.parse(text);
  if (!/\d{16}/.test(text)) return value;
  const marked = text.replace(TOKEN, (token) => (isLong(token) ? `"${MARK}${token}"` : token));
  return JSON.parse(marked, (_, part: unknown) =>
    typeof part === "string" && part.startsWith(MARK) ? BigInt(part.slice(MARK.length)) : part);
}

/** Spaces to indent with, where people read it. */
function stringify(value: unknown, spaces?: number): string {
  const told = (_: string, part: unknown) => (typeof part === "bigint" ? MARK + part : part);
  return (JSON.stringify(value, told, spaces) ?? "").replace(MARKED, "$1");
}

/** For `new Client({ json: exact })`. */
export const exact = { parse, stringify };
