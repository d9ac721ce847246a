// Finding tasks, and doing something with all that fit.

import { useVirtualizer } from "@tanstack/react-virtual";
import { useDeferredValue, useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { type Action } from "@outlast/client";
import { isRefused, type Task } from "../api.ts";
import { STATUSES, tasksAt } from "../words.ts";
import { brief, count, excerpt } from "../format.ts";
import { useParam } from "../router.ts";
import { statusOf, withStatus } from "../state/filter.ts";
import { useTaskPages } from "../state/list.ts";
import { useMay, useQueues } from "../state/reads.ts";
import { keep, useSettings } from "../state/settings.ts";
import { Bulk } from "../ui/Bulk.tsx";
import { FilterField } from "../ui/FilterField.tsx";
import { Ago, Empty, Failed, StateBadge, TaskLink } from "../ui/show.tsx";
import { TaskProgress, useNow } from "../ui/tasks.tsx";

const ROW_PX = 48;

export function Tasks() {
  const [filter, setFilter] = useParam("q");
  const [chosen, choose] = useState<ReadonlySet<string>>(new Set());
  const [all, setAll] = useState(false);
  const list = useTaskPages(useDeferredValue(filter));
  const operates = useMay("operate");
  useEffect(() => {
    choose(new Set());
    setAll(false);
  }, [filter]);
  return (
    <>
      <h1 className="hidden">Tasks</h1>
      <FilterField filter={filter} set={setFilter} />
      <Views filter={filter} />
      <Statuses filter={filter} set={setFilter} />
      {list.error ? <Failed error={list.error} {...(isRefused(list.error, 422) ? {} : { again: () => void list.again() })} /> : null}
      {operates && list.isShown && list.tasks.length > 0 ? (
        <Bulk filter={filter} chosen={[...chosen]} all={all} setAll={setAll} offered={ACTIONS} />
      ) : null}
      {list.error && !list.isShown ? null : <Rows {...list} choose={operates ? choose : null} chosen={chosen} all={all} />}
    </>
  );
}

const ACTIONS: readonly Action[] = ["retry", "cancel", "delete"];

function Statuses({ filter, set }: { filter: string; set: (filter: string) => void }) {
  const queues = useQueues();
  const here = statusOf(filter);
  return (
    <div className="chips" role="group" aria-label="By status">
      {STATUSES.map((status) => (
        <button key={status} type="button" aria-pressed={here.split(",").includes(status)}
          onClick={() => set(withStatus(filter, here === status ? "" : status))}>
          <StateBadge status={status} /> <b className="num">{count(queues.data?.states[status] ?? 0)}</b>
        </button>
      ))}
    </div>
  );
}

/** Filters that this browser remembers. */
function Views({ filter }: { filter: string }) {
  const { views } = useSettings();
  const here = views.find((view) => view.q === filter);
  if (views.length === 0 && filter === "") return null;
  return (
    <div className="views">
      {views.map((view) => (
        <span key={view.name} className="view">
          <Link href={tasksAt(view.q)} aria-current={view === here ? "page" : undefined}>{view.name}</Link>
          <button type="button" className="quiet" aria-label={`Forget the view ${view.name}`}
            onClick={() => keep({ views: views.filter((one) => one !== view) })}>✕</button>
        </span>
      ))}
      {filter !== "" && !here ? (
        <form className="save" onSubmit={(event) => {
          event.preventDefault();
          const name = String(new FormData(event.currentTarget).get("name")).trim();
          if (name) keep({ views: [...views.filter((one) => one.name !== name), { name, q: filter }] });
        }}>
          <input name="name" aria-label="Name of the view" placeholder="Save as a view…" maxLength={40} />
          <button type="submit" className="quiet">Save</button>
        </form>
      ) : null}
    </div>
  );
}

interface Told {
  tasks: readonly Task[];
  next: string | null;
  isReading: boolean;
  more: () => Promise<void>;
  chosen: ReadonlySet<string>;
  choose: ((ids: ReadonlySet<string>) => void) | null;
  all: boolean;
}

function Rows({ tasks, next, isReading, more, chosen, choose, all }: Told) {
  const place = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: tasks.length,
    getScrollElement: () => place.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
  });
  const shown = rows.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (next !== null && last >= tasks.length - 40) void more();
  }, [next, last, tasks.length, more]);
  if (tasks.length === 0) {
    if (isReading) return <div className="loading" role="status"><span className="hidden">Reading…</span><i /><i /><i /></div>;
    return <Empty>No task fits. <Link href="/types">Enqueue one</Link>, or take something out of the filter.</Empty>;
  }
  const before = shown[0]?.start ?? 0;
  const behind = rows.getTotalSize() - (shown.at(-1)?.end ?? 0);
  return (
    <div className="list scroll" ref={place} tabIndex={0} role="region" aria-label="Tasks" aria-busy={isReading}>
      <table aria-rowcount={next === null ? tasks.length + 1 : -1}>
        <caption className="hidden">Tasks, newest first</caption>
        <thead>
          <tr>
            {choose ? <th scope="col"><span className="hidden">Choose</span></th> : null}
            <th scope="col">Status</th><th scope="col">Task</th>
            <th scope="col" className="wide">Queue</th><th scope="col" className="grow wide">Payload</th>
            <th scope="col" className="wide">Progress</th><th scope="col" className="num wide">Attempt</th>
            <th scope="col" className="num">Age</th>
          </tr>
        </thead>
        <tbody>
          {before > 0 ? <tr aria-hidden="true"><td style={{ height: before }} /></tr> : null}
          {shown.map(({ index }) => {
            const task = tasks[index];
            if (task === undefined) return null;
            const toggle = choose && (() => {
              const some = new Set(chosen);
              if (!some.delete(task.id)) some.add(task.id);
              choose(some);
            });
            return <Row key={task.id} task={task} place={index + 2} isChosen={all || chosen.has(task.id)} toggle={toggle} />;
          })}
          {behind > 0 ? <tr aria-hidden="true"><td style={{ height: behind }} /></tr> : null}
        </tbody>
      </table>
      <p className="soft foot">{count(tasks.length)}{next === null ? "" : " read so far; there are more"}</p>
    </div>
  );
}

function Row({ task: read, place, isChosen, toggle }: { task: Task; place: number; isChosen: boolean; toggle: (() => void) | null }) {
  const task = useNow(read);
  return (
    <tr aria-rowindex={place} data-task={task.id}>
      {toggle ? <td className="box"><input type="checkbox" checked={isChosen} onChange={toggle} aria-label={`Choose ${task.type} ${task.id}`} /></td> : null}
      <td><StateBadge status={task.status} /></td>
      <td><TaskLink id={task.id}>{task.type}</TaskLink></td>
      <td className="wide">{task.queue}</td>
      <td className="wide"><span className="clip code">{excerpt(task.payload)}</span></td>
      <td className="wide"><TaskProgress task={task} /></td>
      <td className="num wide">{brief(task.attempt)} of {brief(task.max_attempts)}</td>
      <td className="num"><Ago at={task.created_at} /></td>
    </tr>
  );
}
