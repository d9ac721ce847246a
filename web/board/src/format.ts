// Numbers, times and spans, as people read them. Pure: the clock is an argument.

import { exact } from "@outlast/client";

export function count(n: number): string {
  return n.toLocaleString("en");
}

/** A number where there is little room: `4`, `10K`, `1M`. */
export const brief = (n: number): string => n.toLocaleString("en", { notation: "compact" });

/** A span, short: `340 ms`, `4.2 s`, `3 min`, `5 h`, `2 d`. */
export function span(ms: number): string {
  const past = Math.max(0, ms);
  if (past < 1000) return `${Math.round(past)} ms`;
  if (past < 9_950) return `${(past / 1000).toFixed(1)} s`;
  if (past < 99_500) return `${Math.round(past / 1000)} s`;
  if (past < 5_970_000) return `${Math.round(past / 60_000)} min`;
  if (past < 172_800_000) return `${Math.round(past / 3_600_000)} h`;
  return `${Math.round(past / 86_400_000)} d`;
}

/** How long ago, in whole seconds below a minute: it is shown while it ticks. */
export function ago(at: string, now: number): string {
  const past = Math.max(0, now - Date.parse(at));
  return past < 60_000 ? `${Math.floor(past / 1000)} s` : span(past);
}

/** Until a moment: `in 4 s`, or `now`. */
export function until(at: string, now: number): string {
  const left = Date.parse(at) - now;
  if (left <= 0) return "now";
  return left < 90_000 ? `in ${Math.ceil(left / 1000)} s` : `in ${span(left)}`;
}

export function between(from: string, to: string): string {
  return span(Date.parse(to) - Date.parse(from));
}

/** A moment in full, here or in UTC. */
export function moment(at: string, utc: boolean): string {
  if (utc) return at.replace("T", " ").replace(/\.\d+Z$/, " UTC");
  return new Date(at).toLocaleString("sv").replace(",", "");
}

/** The time of a day. */
export function clock(at: string | number, utc: boolean): string {
  const zone = utc ? { timeZone: "UTC" } : {};
  return new Date(at).toLocaleTimeString("sv", { ...zone, hour: "2-digit", minute: "2-digit" });
}

/** The day of a year, short. */
export function day(at: string | number, utc: boolean): string {
  const zone = utc ? { timeZone: "UTC" } : {};
  return new Date(at).toLocaleDateString("sv", { ...zone, month: "2-digit", day: "2-digit" });
}

export const percent = (share: number): string => `${Math.round(share * 100)} %`;

export const money = (cost: number): string =>
  cost === 0 ? "0" : cost < 1 ? cost.toPrecision(2) : cost.toLocaleString("en", { maximumFractionDigits: 2 });

/** One line of a value, to tell tasks apart. */
export function excerpt(value: unknown, most = 160): string {
  const text = typeof value === "string" ? value : exact.stringify(value);
  const bare = text.startsWith("{") ? text.slice(1, -1) : text;
  return bare.length > most ? `${bare.slice(0, most)}…` : bare;
}

const CONTENT = /gc_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g;

/** The ids of stored content that a result names, wherever in it, each once. */
export const contentsOf = (value: unknown): string[] => [...new Set(exact.stringify(value).match(CONTENT) ?? [])];

/** The last characters of an id: the first ones are its time, alike for all of today. */
export const shortId = (id: string): string => id.slice(-6);
