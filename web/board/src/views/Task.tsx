// One task: what it waits for, what it says, what it did, and what can be done with it.

import { useState } from "react";
import { Link } from "wouter";
import { client, isRefused, type Shapes, type Task } from "../api.ts";
import { AGAIN, FINAL, quoted, tasksAt } from "../words.ts";
import { between, count, money, span } from "../format.ts";
import { go } from "../router.ts";
import { useStory } from "../state/follow.ts";
import { useSeen } from "../state/live.ts";
import { overlay } from "../state/board.ts";
import { useMay, useRead, useSome } from "../state/reads.ts";
import type { Story } from "../state/story.ts";
import { Act } from "../ui/act.tsx";
import { Contents } from "../ui/Contents.tsx";
import { EditPayload } from "../ui/EditPayload.tsx";
import { Json, textOf } from "../ui/Json.tsx";
import { Question } from "../ui/Question.tsx";
import { Ago, Empty, Facts, Loaded, Moment, Panel, Progress, StateBadge, TaskLink, Until } from "../ui/show.tsx";
import { type Column, Table } from "../ui/Table.tsx";
import { TaskProgress, useNow } from "../ui/tasks.tsx";
import { Timeline } from "../ui/Timeline.tsx";

export function TaskView({ id }: { id: string }) {
  const read = useRead("tasks", ["one", id], () => client.get(id));
  if (isRefused(read.error, 404)) return <Empty>There is no task {id}, or it was deleted.</Empty>;
  return <Loaded read={read}>{(task) => <One task={task} />}</Loaded>;
}

function One({ task: read }: { task: Task }) {
  const task = overlay(read, useSeen(read.id));
  const lives = !FINAL.includes(task.status);
  const story = useStory(client, task.id, lives);
  const progress = lives ? (story.progress ?? task.progress) : null;
  return (
    <article className="task">
      <header className="head">
        <h1>{task.type}</h1>
        <StateBadge status={task.status} />
        <span className="soft num">attempt {task.attempt} of {task.max_attempts}</span>
        {task.worker ? <span className="soft">on {task.worker}</span> : null}
        <span className="gap" />
        <Actions task={task} />
      </header>
      <p className="soft code ids">{task.id}</p>
      <WhyBox task={task} />
      {task.status === "blocked" ? <Asks id={task.id} /> : null}
      {progress ? <Panel><Progress percent={progress.percent} message={progress.message} /></Panel> : null}
      <div className="columns">
        <div>
          <Output story={story} task={task} />
          {task.error && task.status !== "completed" ? <Failure error={task.error} /> : null}
          {task.status === "completed" ? <Panel title="Result"><Contents of={task.result} /><Json value={task.result} label="Result" /></Panel> : null}
          <Panel title="Payload"><Json value={task.payload} label="Payload" /></Panel>
          <Children id={task.id} />
        </div>
        <div>
          <Panel title="Timeline"><Timeline task={task} story={story} /></Panel>
          <Panel title="About it"><About task={task} /></Panel>
          <Happened story={story} />
        </div>
      </div>
    </article>
  );
}

function Asks({ id }: { id: string }) {
  const read = useRead("approvals", ["of", id], () => client.approvals({ q: `id:${id}` }));
  return read.data?.items.map((asked) => <Question key={asked.signal} asked={asked} />);
}

function Actions({ task }: { task: Task }) {
  const operates = useMay("operate");
  const acts = useMay("act");
  const enqueues = useMay("enqueue");
  const [editing, edit] = useState<"retry" | "new" | null>(null);
  const over = FINAL.includes(task.status);
  return (
    <div className="actions">
      {operates && AGAIN.includes(task.status) ? (
        <>
          <Act tone="primary" work={async () => { await client.retry(task.id); return "It runs again."; }}>
            {task.status === "retrying" ? "Run it now" : "Redrive"}
          </Act>
          <button type="button" onClick={() => edit("retry")}>Edit and redrive</button>
        </>
      ) : null}
      {enqueues && over ? <button type="button" onClick={() => edit("new")}>Edit and rerun</button> : null}
      {acts && !over ? (
        <Act tone="danger" label="Cancel the task" work={async () => { await client.cancel(task.id, "cancelled in the dashboard"); return "It is told to stop."; }}
          sure={task.status === "running" ? "The attempt is told to stop; what it has done so far stays done." : "It will not run."}>
          Cancel
        </Act>
      ) : null}
      {operates && task.status !== "running" && task.status !== "stalled" ? (
        <Act tone="danger" label="Delete the task" sure="It is forgotten, with its history. This cannot be undone."
          work={async () => { await client.delete(task.id); go("/tasks"); return "It is deleted."; }}>
          Delete
        </Act>
      ) : null}
      {editing ? <EditPayload task={task} how={editing} close={() => edit(null)} /> : null}
    </div>
  );
}

/** The one thing it waits for; where the time went, when it is over. */
function WhyBox({ task }: { task: Task }) {
  const read = useRead("tasks", ["why", task.id], () => client.why(task.id));
  return (
    <div className="why">
      <Loaded read={read}>
        {(why) => (
          <>
            <p>{why.text}</p>
            {why.action ? <p className="soft"><Cure action={why.action} id={task.id} /></p> : null}
            {why.until && !FINAL.includes(task.status) ? <p className="soft">Until then: <Until at={why.until} /></p> : null}
            {why.holders.length > 0 ? (
              <p className="soft">Held by {why.holders.slice(0, 8).map((id) => <TaskLink key={id} id={id} />)}</p>
            ) : null}
            {why.spent ? (
              <p className="spent">
                {Object.entries(why.spent).filter(([, s]) => s > 0).map(([name, s]) => <span key={name}>{name} <b className="num">{span(s * 1000)}</b></span>)}
              </p>
            ) : null}
          </>
        )}
      </Loaded>
    </div>
  );
}

const SCREENS: Record<string, string> = { queues: "/queues", limits: "/limits", budgets: "/usage" };

/** What would help, which is told for the API: here it is a screen, or a button above. */
function Cure({ action, id }: { action: string; id: string }) {
  const [, what, of, other] = /^(.*): (?:GET|POST|PUT) \/(\w+)\/([^/]+)/.exec(action) ?? [];
  if (what === undefined || of === undefined || other === undefined) return action;
  if (of === "tasks" && other !== id) return <>{what}: <TaskLink id={other} /></>;
  const screen = SCREENS[of];
  if (screen !== undefined) return <Link href={screen}>{what}</Link>;
  return /retry$/.test(action) ? null : action;
}

function Output({ story, task }: { story: Story; task: Task }) {
  const lives = !FINAL.includes(task.status);
  if (story.output === "" && story.rolledBack === 0) return null;
  if (task.status === "completed" && story.output === textOf(task.result)) return null; // the result says it
  return (
    <Panel title="Stream" aside={story.rolledBack > 0 ? <span className="soft">output of {story.rolledBack} failed {story.rolledBack === 1 ? "attempt" : "attempts"} left out</span> : null}>
      <pre className="prose stream" data-stream aria-live={lives ? "polite" : "off"} tabIndex={0} role="region" aria-label="Stream">
        {story.output}
        {lives ? <span className="caret" aria-hidden="true" /> : null}
      </pre>
    </Panel>
  );
}

function Failure({ error }: { error: Shapes["TaskError"] }) {
  return (
    <Panel title="Error" aside={error.code ? <code className="soft">{error.code}</code> : null}>
      <p className="wrong"><b>{error.type}</b>: {error.message}</p>
      {error.details === null || error.details === undefined ? null : <Json value={error.details} label="Details of the error" />}
      {error.traceback ? (
        <details open><summary>Traceback</summary><pre tabIndex={0} role="region" aria-label="Traceback">{error.traceback}</pre></details>
      ) : null}
    </Panel>
  );
}

function Children({ id }: { id: string }) {
  const read = useSome(`parent:${id}`, 50);
  if (!read.data || read.data.items.length === 0) return null;
  const columns: Column<Task>[] = [
    { head: "Status", cell: (task) => <Now task={task} /> },
    { head: "Task", cell: (task) => <TaskLink id={task.id}>{task.type}</TaskLink> },
    { head: "Progress", grow: true, wide: true, cell: (task) => <TaskProgress task={task} /> },
    { head: "Age", num: true, cell: (task) => <Ago at={task.created_at} /> },
  ];
  return (
    <Panel title="Children" aside={<Link href={tasksAt(`parent:${id}`)}>All of them</Link>}>
      <Table label="Children" columns={columns} rows={read.data.items} id={(task) => task.id} empty="" />
    </Panel>
  );
}

function Now({ task }: { task: Task }) {
  return <StateBadge status={useNow(task).status} />;
}

function About({ task }: { task: Task }) {
  const filter = (field: string, value: string | null) =>
    value ? <Link href={tasksAt(`${field}:${quoted(value)}`)}>{value}</Link> : null;
  const { usage } = task;
  return (
    <Facts facts={[
      ["Queue", filter("queue", task.queue)],
      ["Lane", task.lane === "primary" ? null : task.lane],
      ["Priority", task.priority === 2 ? null : task.priority],
      ["Created", <Moment key="created" at={task.created_at} />],
      ["Due", FINAL.includes(task.status) || task.status === "running" ? null : <Until key="due" at={task.retry_at ?? task.run_at} />],
      ["Began", task.started_at ? <Moment key="began" at={task.started_at} /> : null],
      ["Ended", task.completed_at ? <><Moment at={task.completed_at} /> <span className="soft keep">after {between(task.created_at, task.completed_at)}</span></> : null],
      ["Reason", task.reason],
      ["Losses", task.losses ? `${task.losses} of ${task.max_losses}` : null],
      ["Timeout", task.timeout === null ? null : span(task.timeout * 1000)],
      ["Limits", task.limits.join(", ")],
      ["Tags", task.tags.length > 0 ? task.tags.map((tag) => <Link key={tag} className="tag" href={tasksAt(`tag:${quoted(tag)}`)}>{tag}</Link>) : null],
      ["Session", filter("session", task.session_id)],
      ["User", filter("user", task.user_id)],
      ["Parent", task.parent_id ? <TaskLink id={task.parent_id} /> : null],
      ["Workflow", task.workflow_id ? <TaskLink id={task.workflow_id} /> : null],
      ["Unique key", task.unique_key],
      ["Error group", filter("error", task.fingerprint)],
      ["Used", usage ? `${count(usage.tokens)} tokens, ${money(usage.cost)}` : null],
    ]} />
  );
}

function Happened({ story }: { story: Story }) {
  if (story.moments.length === 0) return null;
  return (
    <Panel title="Log">
      <ol className="log" tabIndex={0} aria-label="Log of the task">
        {story.moments.map((moment) => (
          <li key={moment.id}><Moment at={moment.at} /> <span>{moment.text}</span></li>
        ))}
      </ol>
    </Panel>
  );
}
