// Limits: who holds them, what room is left, and when a circuit is tried again.

import { type FormEvent, useState } from "react";
import { Link } from "wouter";
import { client, type Shapes } from "../api.ts";
import { count, percent, span } from "../format.ts";
import { useLimits, useMay } from "../state/reads.ts";
import { Act, act, Dialog } from "../ui/act.tsx";
import { Loaded, Meter, Panel, Tag, TaskLink, Until } from "../ui/show.tsx";
import { type Column, Table } from "../ui/Table.tsx";
import { quoted, tasksAt } from "../words.ts";

type Gauge = Shapes["Gauge"];
type Known = Shapes["KnownLimit"];

export function Limits() {
  const read = useLimits();
  const [editing, edit] = useState<Known | "new" | null>(null);
  const operates = useMay("operate");
  return (
    <>
      <h1>Limits and circuits</h1>
      <Loaded read={read}>
        {({ items, gauges }) => (
          <>
            <Panel title="In use"><Gauges gauges={gauges} /></Panel>
            <Panel title="Definitions" aside={operates ? <button type="button" onClick={() => edit("new")}>Define one</button> : null}>
              <Definitions items={items} edit={edit} />
            </Panel>
          </>
        )}
      </Loaded>
      {editing ? <Edit limit={editing === "new" ? null : editing} close={() => edit(null)} /> : null}
    </>
  );
}

const CIRCUITS = { closed: "good", half_open: "warn", open: "bad" } as const;
const HOLDERS = 6;
const RESETS = "Its circuit closes, and its rate starts afresh: what waits for them goes on at once. Slots stay with who holds them, and a pause that the service asked for is kept.";

function Gauges({ gauges }: { gauges: readonly Gauge[] }) {
  const operates = useMay("operate");
  const columns: Column<Gauge>[] = [
    { head: "Key", cell: (gauge) => <b>{gauge.key}</b> },
    {
      head: "Slots", cell: ({ key, limit, used }) => limit?.slots
        ? <span className="withmeter"><Meter used={used} of={limit.slots} label={`Slots of ${key}`} /><span className="num">{used} of {limit.slots}</span></span>
        : <span className="num">{used}</span>,
    },
    { head: "Rate", wide: true, cell: ({ limit }) => limit?.rate ?? "–" },
    {
      head: "Circuit", cell: (gauge) => (
        <>
          <Tag tone={CIRCUITS[gauge.circuit]}>{gauge.circuit.replace("_", "-")}</Tag>
          {gauge.open_until && gauge.circuit === "open" ? <span className="soft"> tried again <Until at={gauge.open_until} /></span> : null}
          {gauge.paused_until ? <span className="soft"> paused, goes on <Until at={gauge.paused_until} /></span> : null}
          {gauge.probe ? <span className="soft"> tried by <TaskLink id={gauge.probe} /></span> : null}
          {operates && (gauge.circuit !== "closed" || gauge.limit?.rate) ? (
            <> <Act label={`Reset ${gauge.key}`} sure={RESETS} work={async () => { await client.resetLimit(gauge.key); return `${gauge.key} begins afresh.`; }}>Reset</Act></>
          ) : null}
        </>
      ),
    },
    { head: "Waiting", num: true, cell: ({ key, waiting }) => <Link href={tasksAt(`limit:${quoted(key)} status:throttled`)}>{count(waiting)}</Link> },
    {
      head: "Held by", wide: true, cell: ({ holders }) => (
        <span className="holders">
          {holders.slice(0, HOLDERS).map((id) => <TaskLink key={id} id={id} />)}
          {holders.length > HOLDERS ? ` and ${holders.length - HOLDERS} more` : ""}
        </span>
      ),
    },
  ];
  return <Table label="Limits in use" columns={columns} rows={gauges} id={(gauge) => gauge.key} empty="No limit is in use: no task that names one has come yet." />;
}

function Definitions({ items, edit }: { items: readonly Known[]; edit: (limit: Known) => void }) {
  const operates = useMay("operate");
  const columns: Column<Known>[] = [
    { head: "Key", cell: (limit) => <b>{limit.key}</b> },
    { head: "Slots", num: true, cell: (limit) => limit.slots ?? "–" },
    { head: "Rate", num: true, cell: (limit) => limit.rate ?? "–" },
    { head: "Circuit", wide: true, cell: ({ trip }) => trip ? `opens at ${percent(trip.rate ?? 0.5)} of ${trip.volume} in ${asSpan(trip.window)}, for ${asSpan(trip.open)}` : "–" },
    { head: "From", wide: true, cell: (limit) => limit.source },
    {
      head: "", cell: (limit) => operates ? (
        <span className="actions">
          <button type="button" aria-label={`Edit ${limit.key}`} onClick={() => edit(limit)}>Edit</button>
          {limit.source === "people" ? ( // what code gives comes back at once
            <Act tone="danger" label={`Delete ${limit.key}`} sure="If code gives one of that key, it comes back as code gives it; else tasks that wait for it go on."
              work={async () => { await client.deleteLimit(limit.key); return `${limit.key} is deleted.`; }}>Delete</Act>
          ) : null}
        </span>
      ) : null,
    },
  ];
  return <Table label="Definitions of limits" columns={columns} rows={items} id={(limit) => limit.key} empty="No limit is defined: code does it with Limit(…), or you do it here." />;
}

const asSpan = (told: number | string | undefined): string => (typeof told === "number" ? span(told * 1000) : (told ?? "60 s"));

function Edit({ limit, close }: { limit: Known | null; close: () => void }) {
  const save = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const told = Object.fromEntries(new FormData(event.currentTarget)) as Record<string, string>;
    const trip = told.trip ? { rate: Number(told.trip) / 100, volume: Number(told.volume || 10), window: told.window || "60s", open: told.open || "60s" } : null;
    const body = { slots: told.slots ? Number(told.slots) : null, rate: told.rate || null, trip };
    const key = limit?.key ?? told.key ?? "";
    if (await act(async () => { await client.setLimit(key, body); return `${key} is set; workers follow within a second.`; })) close();
  };
  const { trip } = limit ?? {};
  return (
    <Dialog title={limit ? `Limit ${limit.key}` : "A new limit"} close={close}>
      <form className="form" onSubmit={(event) => void save(event)}>
        {limit ? null : <label>Key <small>exact, or a family as user:*</small><input name="key" required maxLength={200} /></label>}
        <div className="row">
          <label>Slots <small>at once</small><input name="slots" type="number" min={1} defaultValue={limit?.slots ?? ""} /></label>
          <label>Rate <small>as 60/min</small><input name="rate" defaultValue={limit?.rate ?? ""} /></label>
        </div>
        <fieldset className="row">
          <legend>Circuit</legend>
          <label>Opens at % failed<input name="trip" type="number" min={0.1} max={100} step="any" defaultValue={trip ? Number(((trip.rate ?? 0.5) * 100).toPrecision(12)) : ""} /></label>
          <label>Of at least<input name="volume" type="number" min={1} defaultValue={trip?.volume ?? ""} /></label>
          <label>Within<input name="window" placeholder="60s" defaultValue={trip?.window ?? ""} /></label>
          <label>Open for<input name="open" placeholder="60s" defaultValue={trip?.open ?? ""} /></label>
        </fieldset>
        <footer><button type="button" onClick={close}>Not now</button><button type="submit" className="primary">Set it</button></footer>
      </form>
    </Dialog>
  );
}
