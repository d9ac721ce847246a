// Queues: how deep, how old, which lane gets how much; stop and go.

import { useState } from "react";
import { Link } from "wouter";
import { client, type Shapes, type Task } from "../api.ts";
import { count, percent, span } from "../format.ts";
import { pulse } from "../state/board.ts";
import { now } from "../state/clock.ts";
import { useBoard } from "../state/live.ts";
import { useMay, useQueues, useRead, useWorkers } from "../state/reads.ts";
import { Act } from "../ui/act.tsx";
import { Ago, Empty, Facts, Loaded, Sparkline, Tag, TaskLink } from "../ui/show.tsx";
import { type Column, Table } from "../ui/Table.tsx";
import { quoted, tasksAt } from "../words.ts";

export function Queues() {
  const read = useQueues();
  return (
    <>
      <h1>Queues</h1>
      <Loaded read={read}>
        {({ by_queue }) => {
          const queues = Object.entries(by_queue);
          if (queues.length === 0) return <Empty>No queue yet: it comes with its first task.</Empty>;
          return queues.map(([name, queue]) => <One key={name} name={name} queue={queue} />);
        }}
      </Loaded>
    </>
  );
}

const PRESSURE = { normal: "", warning: "warn", critical: "bad" } as const;

function One({ name, queue }: { name: string; queue: Shapes["Queue"] }) {
  const board = useBoard();
  const workers = useWorkers();
  const operates = useMay("operate");
  const [open, setOpen] = useState(false);
  const serving = (workers.data ?? []).filter((one) => one.alive && (one.queues.length === 0 || one.queues.includes(name)));
  const link = (status: string, n: number) => <Link className="num" href={tasksAt(`queue:${quoted(name)} status:${status}`)}>{count(n)}</Link>;
  return (
    <section className="panel" data-queue={name}>
      <header>
        <h2>{name} {queue.paused ? <Tag tone="warn">paused</Tag> : null}
          {queue.pressure === "normal" ? null : <Tag tone={PRESSURE[queue.pressure]}>retry lane: {queue.pressure}</Tag>}</h2>
        {operates ? (
          queue.paused
            ? <Act tone="primary" label={`Resume ${name}`} work={async () => { await client.resume(name); return `${name} goes on.`; }}>Resume</Act>
            : <Act label={`Pause ${name}`} work={async () => { await client.pause(name); return `${name} is paused: what runs goes on.`; }}>Pause</Act>
        ) : null}
      </header>
      <div className="halves">
        <Facts facts={[
          ["Ready", link("ready", queue.primary + queue.retry)],
          ["Primary lane", <span key="p" className="num">{count(queue.primary)}</span>],
          ["Retry lane", <span key="r"><span className="num">{count(queue.retry)}</span> <span className="soft">with {percent(queue.retry_ratio)} of the claims while both have work</span></span>],
          ["Later", link("scheduled,retrying", queue.scheduled)],
          ["Throttled", queue.states.throttled ? link("throttled", queue.states.throttled) : null],
          ["Blocked", queue.states.blocked ? link("blocked", queue.states.blocked) : null],
        ]} />
        <Facts facts={[
          ["Running", link("running", queue.states.running ?? 0)],
          ["Oldest waits", queue.oldest_seconds > 0 ? span(queue.oldest_seconds * 1000) : "–"],
          ["Per minute", <span key="d" className="num">{count(queue.completed_per_minute)}</span>],
          ["Served by", serving.length === 0 ? <span key="s" className="wrong">no worker</span> : `${serving.length} ${serving.length === 1 ? "worker" : "workers"}`],
          ["Dead", link("dead", queue.dlq)],
          ["Five minutes", <Sparkline key="5" values={pulse(board, now(), name)} label={`What ended in ${name}`} />],
        ]} />
      </div>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>Who is next</summary>
        {open ? <Next queue={name} /> : null}
      </details>
    </section>
  );
}

const LOOKED_AT = 500;
const SHOWN = 8;

/** In the order in which they are taken. It takes all that wait to know who is first. */
function Next({ queue }: { queue: string }) {
  const read = useRead("tasks", ["next", queue], () => client.page({ q: `queue:${quoted(queue)} status:ready`, limit: LOOKED_AT }));
  const columns: Column<Task>[] = [
    { head: "Task", cell: (task) => <TaskLink id={task.id}>{task.type}</TaskLink> },
    { head: "Lane", cell: (task) => task.lane },
    { head: "Priority", num: true, cell: (task) => task.priority },
    { head: "Due for", num: true, cell: (task) => <Ago at={task.run_at} /> },
  ];
  return (
    <Loaded read={read}>
      {({ items, next }) => {
        if (next !== null) return <p className="soft">More than {count(items.length)} wait: ask a task of them why, and it says how many are ahead.</p>;
        const order = [...items].sort((a, b) => a.priority - b.priority || a.run_at.localeCompare(b.run_at) || a.id.localeCompare(b.id));
        return (
          <>
            <Table label={`Next in ${queue}`} columns={columns} rows={order.slice(0, SHOWN)} id={(task) => task.id} empty="Nothing waits." />
            <p className="soft">By priority, then by when they were due; a fair queue takes turns between its keys.</p>
          </>
        );
      }}
    </Loaded>
  );
}
