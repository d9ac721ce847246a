// The small things that every screen shows: statuses, times, meters, and what is not there.

import type { ReactNode } from "react";
import { Link } from "wouter";
import { messageOf } from "../api.ts";
import type { Status } from "../words.ts";
import { ago, moment, shortId, until } from "../format.ts";
import { useTicking } from "../state/clock.ts";
import type { Read } from "../state/reads.ts";
import { useSettings } from "../state/settings.ts";

const MARKS: Record<string, string> = {
  running: "▶", ready: "●", retrying: "↻", scheduled: "◷", throttled: "≡", blocked: "‖", stalled: "!",
  dead: "✕", cancelled: "–", completed: "✓",
  undoing: "↺", undone: "↺", undo_failed: "✕",
};

/** A status as word, mark and colour: no colour alone carries meaning. */
export function StateBadge({ status }: { status: Status | string }) {
  return (
    <span className={`badge ${status}`}>
      <i aria-hidden="true">{MARKS[status] ?? "●"}</i>
      {status.replace("_", " ")}
    </span>
  );
}

export function Tag({ tone = "", children }: { tone?: "" | "good" | "warn" | "bad"; children: ReactNode }) {
  return <span className={`tag ${tone}`}>{children}</span>;
}

/** How long ago, ticking; the moment in full on hover. */
export function Ago({ at }: { at: string | null | undefined }) {
  const text = useTicking((now) => (at ? ago(at, now) : "–"));
  const { utc } = useSettings();
  return at ? <time className="keep" dateTime={at} title={moment(at, utc)}>{text}</time> : <>–</>;
}

/** A countdown to a moment. */
export function Until({ at }: { at: string | null | undefined }) {
  const text = useTicking((now) => (at ? until(at, now) : "–"));
  const { utc } = useSettings();
  return at ? <time className="keep" dateTime={at} title={moment(at, utc)}>{text}</time> : <>–</>;
}

export function Moment({ at }: { at: string | null | undefined }) {
  const { utc } = useSettings();
  return at ? <time dateTime={at}>{moment(at, utc)}</time> : <>–</>;
}

export function TaskLink({ id, children }: { id: string; children?: ReactNode }) {
  return <Link href={`/tasks/${id}`} className="id" title={id}>{children ?? shortId(id)}</Link>;
}

/** How much of how much, with the numbers beside it. */
export function Meter({ used, of, label }: { used: number; of: number; label: string }) {
  const share = of > 0 ? Math.min(used / of, 1) : 0;
  const tone = share >= 1 ? "full" : share >= 0.8 ? "high" : "";
  return (
    <span className={`meter ${tone}`} role="meter" aria-label={label} aria-valuenow={used} aria-valuemin={0}
      aria-valuemax={of} aria-valuetext={`${used} of ${of}`}>
      <span style={{ width: `${share * 100}%` }} />
    </span>
  );
}

export function Progress({ percent, message }: { percent: number; message?: string }) {
  return (
    <span className="progress">
      <progress max={100} value={percent} aria-label="Progress" />
      <span className="num">{Math.round(percent)} %</span>
      {message ? <span className="soft clip">{message}</span> : null}
    </span>
  );
}

/** A line of what happened lately; the numbers beside it say the same in words. */
export function Sparkline({ values, label }: { values: readonly number[]; label: string }) {
  const most = Math.max(...values, 1);
  const step = 100 / Math.max(values.length - 1, 1);
  const points = values.map((value, n) => `${(n * step).toFixed(1)},${(19 - (value / most) * 18).toFixed(1)}`);
  return (
    <svg className="spark" viewBox="0 0 100 20" preserveAspectRatio="none" role="img" aria-label={label}>
      <polyline points={points.join(" ")} vectorEffect="non-scaling-stroke" />
    </svg>
  );
}

export function Panel({ title, aside, children }: { title?: ReactNode; aside?: ReactNode; children: ReactNode }) {
  return (
    <section className="panel">
      {title ? <header><h2>{title}</h2>{aside}</header> : null}
      {children}
    </section>
  );
}

export function Facts({ facts }: { facts: readonly (readonly [string, ReactNode])[] }) {
  const there = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return <dl className="facts">{there.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

export function Empty({ children }: { children: ReactNode }) {
  return <div className="empty"><span aria-hidden="true">○</span><p>{children}</p></div>;
}

export function Failed({ error, again }: { error: unknown; again?: () => void }) {
  return (
    <div className="refused" role="alert">
      <p>{messageOf(error)}</p>
      {again ? <button type="button" onClick={again}>Try again</button> : null}
    </div>
  );
}

/** What was read; or that it is on its way, or why it did not come. */
export function Loaded<T>({ read, children }: { read: Read<T>; children: (data: T) => ReactNode }) {
  if (read.data !== undefined) {
    return <>{read.error ? <Failed error={read.error} again={() => void read.refetch()} /> : null}{children(read.data)}</>;
  }
  if (read.error) return <Failed error={read.error} again={() => void read.refetch()} />;
  return <div className="loading" role="status"><span className="hidden">Reading…</span><i /><i /><i /></div>;
}
