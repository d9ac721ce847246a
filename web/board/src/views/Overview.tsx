// How it is going, and what needs somebody.

import { type ReactNode, useMemo } from "react";
import { Link } from "wouter";
import { client, link, type Shapes, type Task } from "../api.ts";
import { alike, quoted, STATUSES, tasksAt } from "../words.ts";
import { count, span } from "../format.ts";
import { pulse } from "../state/board.ts";
import { now } from "../state/clock.ts";
import { useBoard } from "../state/live.ts";
import { useDead, useLimits, useQueues, useRead, useSome, useWorkers } from "../state/reads.ts";
import { Chart } from "../ui/Chart.tsx";
import { Ago, Empty, Loaded, Meter, Panel, Sparkline, StateBadge, TaskLink, Until } from "../ui/show.tsx";
import { type Column, Table } from "../ui/Table.tsx";
import { TaskProgress } from "../ui/tasks.tsx";

export function Overview() {
  const queues = useQueues();
  return (
    <>
      <h1 className="hidden">Overview</h1>
      <Loaded read={queues}>
        {(told) => (
          <>
            <Tiles queues={told} />
            <div className="columns">
              <div>
                <Throughput queues={told} />
                <QueueList queues={told} />
              </div>
              <div>
                <NeedsYou />
                <RunningNow />
              </div>
            </div>
          </>
        )}
      </Loaded>
    </>
  );
}

function Tiles({ queues }: { queues: Shapes["Queues"] }) {
  const workers = useWorkers();
  const slots = (workers.data ?? []).filter((one) => one.alive).reduce((sum, one) => sum + one.slots, 0);
  return (
    <div className="tiles">
      {STATUSES.filter((status) => queues.states[status] || ["running", "ready", "dead", "completed"].includes(status)).map((status) => (
        <Link key={status} href={tasksAt(`status:${status}`)} className="tile">
          <b>{count(queues.states[status] ?? 0)}</b>
          <StateBadge status={status} />
          {status === "running" && slots > 0 ? <Meter used={queues.states.running ?? 0} of={slots} label="Slots in use" /> : null}
        </Link>
      ))}
    </div>
  );
}

/** What ended: hours from the server's history. */
function Throughput({ queues }: { queues: Shapes["Queues"] }) {
  const done = Object.values(queues.by_queue).reduce((sum, queue) => sum + queue.completed_per_minute, 0);
  const read = useRead("once", ["history"], () => link.call("get", "/api/v1/metrics/tasks", { query: { by: "hour" } }), 60_000);
  const series = useMemo(() => hourly(read.data?.items ?? []), [read.data]);
  return (
    <Panel title="Ended per hour" aside={<span className="soft num">{count(done)} done in the last minute</span>}>
      <Loaded read={read}>{() => <Chart series={series} label="Tasks ended per hour" />}</Loaded>
    </Panel>
  );
}

const HOUR_MS = 3_600_000;

function hourly(items: readonly Shapes["TaskMetric"][]) {
  const last = Math.floor(now() / HOUR_MS);
  const hours = Array.from({ length: 24 }, (_, n) => last - 23 + n);
  const sums = (pick: (one: Shapes["TaskMetric"]) => number) =>
    hours.map((hour) => items.filter((one) => Math.floor(Date.parse(one.begin) / HOUR_MS) === hour).reduce((sum, one) => sum + pick(one), 0));
  return {
    at: hours.map((hour) => (hour * HOUR_MS) / 1000),
    lines: [
      { name: "completed", tone: "green", values: sums((one) => one.completed) },
      { name: "dead", tone: "red", values: sums((one) => one.dead) },
    ],
  };
}

function NeedsYou() {
  const limits = useLimits();
  const dead = useDead();
  const approvals = useRead("approvals", [], () => client.approvals({ limit: 100 }));
  const needs: ReactNode[] = [];
  for (const gauge of limits.data?.gauges ?? []) {
    if (gauge.circuit === "closed") continue;
    needs.push(
      <li key={gauge.key}>
        <Link href="/limits">Circuit {gauge.key} is {gauge.circuit.replace("_", "-")}</Link>
        <span className="soft">next try <Until at={gauge.open_until} /></span>
      </li>,
    );
  }
  const asked = approvals.data?.items.length ?? 0;
  if (asked > 0) needs.push(<li key="asked"><Link href="/approvals">{asked} {asked === 1 ? "question waits" : "questions wait"} for an answer</Link></li>);
  for (const group of (dead.data ?? []).slice(0, 4)) {
    const filter = alike(group);
    needs.push(
      <li key={`${group.type} ${group.fingerprint}`}>
        <Link href={tasksAt(filter)}>{group.error_type ?? group.reason ?? "Dead"} in {group.type}</Link>
        <span className="soft">{count(group.count)} dead, last <Ago at={group.last_at} /></span>
      </li>,
    );
  }
  return (
    <Panel title="Needs you" aside={(dead.data ?? []).length > 0 ? <Link href="/failures">All failures</Link> : null}>
      {needs.length > 0 ? <ul className="needs">{needs}</ul> : <Empty>Nothing needs you now.</Empty>}
    </Panel>
  );
}

type Named = Shapes["Queue"] & { name: string };

function QueueList({ queues }: { queues: Shapes["Queues"] }) {
  const board = useBoard();
  const rows: Named[] = Object.entries(queues.by_queue).map(([name, queue]) => ({ name, ...queue }));
  const columns: Column<Named>[] = [
    { head: "Queue", grow: true, cell: (queue) => <><Link href={tasksAt(`queue:${quoted(queue.name)}`)}>{queue.name}</Link>{queue.paused ? <span className="tag warn">paused</span> : null}</> },
    { head: "Ready", num: true, cell: (queue) => count(queue.states.ready ?? 0) },
    { head: "Running", num: true, cell: (queue) => count(queue.states.running ?? 0) },
    { head: "Oldest", num: true, wide: true, cell: (queue) => (queue.oldest_seconds > 0 ? span(queue.oldest_seconds * 1000) : "–") },
    { head: "Per minute", num: true, wide: true, cell: (queue) => count(queue.completed_per_minute) },
    { head: "5 min", wide: true, cell: (queue) => <Sparkline values={pulse(board, now(), queue.name)} label={`What ended in ${queue.name} within five minutes`} /> },
  ];
  return (
    <Panel title="Queues" aside={<Link href="/queues">All about them</Link>}>
      <Table label="Queues" columns={columns} rows={rows} id={(queue) => queue.name} empty="No queue yet: it comes with its first task." />
    </Panel>
  );
}

function RunningNow() {
  const read = useSome("status:running", 8);
  const columns: Column<Task>[] = [
    { head: "Task", cell: (task) => <TaskLink id={task.id}>{task.type}</TaskLink> },
    { head: "Progress", grow: true, cell: (task) => <TaskProgress task={task} /> },
    { head: "Since", num: true, cell: (task) => <Ago at={task.started_at} /> },
  ];
  return (
    <Panel title="Running now">
      <Loaded read={read}>
        {({ items }) => <Table label="Running now" columns={columns} rows={items} id={(task) => task.id} empty="Nothing runs right now." />}
      </Loaded>
    </Panel>
  );
}
