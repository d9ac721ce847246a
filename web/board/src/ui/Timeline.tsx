// The attempts of a task, each on its own scale: retries days apart do not flatten what happened.
// What was waited for between them is said in words.

import type { Task } from "../api.ts";
import { between, count, span } from "../format.ts";
import { now, useTicking } from "../state/clock.ts";
import type { Story } from "../state/story.ts";
import { Tag } from "./show.tsx";

interface Tried {
  number: number;
  worker: string | null;
  begin: string;
  /** Not yet, while it runs. */
  end: string | null;
  outcome: string;
  error: { type: string; message: string } | null;
}

const TONES: Record<string, "good" | "bad" | "warn" | ""> = {
  succeeded: "good", failed: "bad", timed_out: "bad", stalled: "warn", released: "warn",
};

export function Timeline({ task, story }: { task: Task; story: Story }) {
  const tried = attemptsOf(task, story);
  if (tried.length === 0) return <p className="soft">No attempt has begun yet.</p>;
  return (
    <ol className="timeline">
      {tried.map((one, n) => {
        const last = tried[n - 1];
        const took = between(last === undefined ? task.created_at : (last.end ?? one.begin), one.begin);
        // Of very many attempts the record keeps the first and the last.
        const gone = one.number - (last?.number ?? 0) - 1;
        return (
          <li key={`${one.number} ${one.begin}`}>
            <p className="soft gapline">{gone > 0 ? `${count(gone)} more ${gone === 1 ? "attempt" : "attempts"} in ${took}` : `waited ${took}`}</p>
            <Attempt one={one} story={story} />
          </li>
        );
      })}
    </ol>
  );
}

function Attempt({ one, story }: { one: Tried; story: Story }) {
  const took = useTicking((at) => span((one.end ? Date.parse(one.end) : at) - Date.parse(one.begin)));
  const inside = story.steps.filter(({ at }) => at >= one.begin && (one.end === null || at <= one.end));
  const kept = story.steps.filter(({ at }) => at < one.begin);
  const begin = Date.parse(one.begin);
  const whole = Math.max((one.end ? Date.parse(one.end) : now()) - begin, 1);
  let from = 0;
  const parts = inside.map(({ name, at }) => {
    const to = Math.min((Date.parse(at) - begin) / whole, 1);
    const part = { name, width: Math.max(to - from, 0.02) };
    from = to;
    return part;
  });
  return (
    <div className={`attempt ${one.outcome}`}>
      <p>
        <b>Attempt {one.number}</b> <Tag tone={TONES[one.outcome] ?? ""}>{one.outcome.replace("_", " ")}</Tag>{" "}
        <span className="num">{took}</span> {one.worker ? <span className="soft">on {one.worker}</span> : null}
      </p>
      <div className="bar" aria-hidden="true">
        {parts.map(({ name, width }) => <span key={name} className="step" title={name} style={{ flexBasis: `${width * 100}%` }}><span>{name}</span></span>)}
        <span className="rest" />
      </div>
      {kept.length > 0 ? <p className="soft">remembered: {kept.map(({ name }) => name).join(", ")}</p> : null}
      {inside.length > 0 ? <p className="soft">steps done: {inside.map(({ name }) => name).join(", ")}</p> : null}
      {one.error ? <p className="wrong">{one.error.type}: {one.error.message}</p> : null}
    </div>
  );
}

/** Those of the record, and the one that runs. */
function attemptsOf(task: Task, story: Story): Tried[] {
  const over = task.attempts.map(({ number, worker, started_at, ended_at, outcome, error }) => ({
    number, worker, begin: started_at, end: ended_at, outcome, error,
  }));
  const begin = story.began[task.attempt] ?? task.started_at;
  if (task.status !== "running" || begin === null) return over;
  return [...over, { number: task.attempt, worker: task.worker, begin, end: null, outcome: "running", error: null }];
}
