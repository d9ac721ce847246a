// One action for many tasks: first how many it would be, then as a task whose progress one can watch.

import type { Action } from "@outlast/client";
import { useState } from "react";
import { client } from "../api.ts";
import { count } from "../format.ts";
import { act, Dialog, say } from "./act.tsx";
import { TaskLink } from "./show.tsx";

const AT_ONCE = 50; // ids in one filter
export const WORDS: Record<Action, string> = { retry: "Redrive", cancel: "Cancel", delete: "Delete" };

interface Told {
  filter: string;
  chosen: readonly string[];
  all: boolean;
  setAll: (all: boolean) => void;
  offered: readonly Action[];
}

/** The bar above a list: what is chosen, and what can be done with it. */
export function Bulk({ filter, chosen, all, setAll, offered }: Told) {
  const filters = all ? [filter] : parts(chosen).map((ids) => `id:${ids.join(",")}`);
  return (
    <div className="bulk" role="group" aria-label="Actions for many">
      <label title={filter === "" ? "Filter first: nobody means all there ever was" : undefined}>
        <input type="checkbox" checked={all} disabled={filter === ""} onChange={(event) => setAll(event.target.checked)} /> all that fit
      </label>
      <span className="soft num">{all ? "" : chosen.length > 0 ? `${count(chosen.length)} chosen` : ""}</span>
      <span className="gap" />
      {all || chosen.length > 0 ? offered.map((action) => <BulkAct key={action} action={action} filters={filters} />) : null}
    </div>
  );
}

/** A button that asks the server how many it would be, and then you. */
export function BulkAct({ action, filters, label }: { action: Action; filters: readonly string[]; label?: string }) {
  const [matched, setMatched] = useState<number>();
  const [rate, setRate] = useState("");
  const [busy, setBusy] = useState(false);
  const word = label ?? WORDS[action];
  const ask = () => act(async () => {
    const found = await Promise.all(filters.map((filter) => client.matching(action, filter)));
    setMatched(found.reduce((sum, one) => sum + one, 0));
    return null;
  });
  const run = async () => {
    setBusy(true);
    await act(async () => {
      for (const filter of filters) {
        const task = await client.bulk(action, filter, rate === "" ? undefined : rate);
        say(<>{WORDS[action]} {count(task.matched)}: <TaskLink id={task.id}>follow it</TaskLink></>);
      }
      return null;
    });
    setBusy(false);
    setMatched(undefined);
  };
  return (
    <>
      <button type="button" className={action === "retry" ? "" : "danger"} onClick={() => void ask()}>{word}…</button>
      {matched === undefined ? null : (
        <Dialog title={`${WORDS[action]} ${count(matched)} ${matched === 1 ? "task" : "tasks"}?`} close={() => setMatched(undefined)}>
          <p className="soft">{filters.length === 1 ? <code className="clip">{filters[0]}</code> : "Those that you chose."}</p>
          <p>{MEANS[action]}</p>
          {action === "retry" ? (
            <label>Pace, as 10/s <input value={rate} onChange={(event) => setRate(event.target.value.trim())} placeholder="all at once" /></label>
          ) : null}
          <footer>
            <button type="button" onClick={() => setMatched(undefined)}>Not now</button>
            <button type="button" className={action === "retry" ? "primary" : "danger"} disabled={busy || matched === 0} onClick={() => void run()}>
              {WORDS[action]} {count(matched)}
            </button>
          </footer>
        </Dialog>
      )}
    </>
  );
}

const MEANS: Record<Action, string> = {
  retry: "Those that are dead, cancelled or retrying run again. Their history stays.",
  cancel: "Those that wait are cancelled at once; those that run are told within about a second.",
  delete: "Those that do not run are forgotten, with their history. This cannot be undone.",
};

function parts(ids: readonly string[]): string[][] {
  const found: string[][] = [];
  for (let n = 0; n < ids.length; n += AT_ONCE) found.push(ids.slice(n, n + AT_ONCE));
  return found;
}
