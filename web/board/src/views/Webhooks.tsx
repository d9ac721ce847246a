// Who is told of what by HTTP, and whether it arrived.

import { type FormEvent, useState } from "react";
import { link, type Shapes, type Task } from "../api.ts";
import { useMay, useRead } from "../state/reads.ts";
import { Act, act, Dialog } from "../ui/act.tsx";
import { Ago, Empty, Loaded, Panel, StateBadge, Tag, TaskLink } from "../ui/show.tsx";
import { type Column, Table } from "../ui/Table.tsx";

type Webhook = Shapes["Webhook"];
const AT = "/api/v1/webhooks/{webhook_id}";

export function Webhooks() {
  if (useMay("admin")) return <All />;
  return (
    <>
      <h1>Webhooks</h1>
      <Panel><Empty>Only an admin sees webhooks, and only where the server is not read-only: their addresses may be secret.</Empty></Panel>
    </>
  );
}

function All() {
  const read = useRead("webhooks", [], () => link.call("get", "/api/v1/webhooks"));
  const [adding, add] = useState(false);
  const [secret, tell] = useState("");
  return (
    <>
      <header className="head"><h1>Webhooks</h1><span className="gap" /><button type="button" onClick={() => add(true)}>Subscribe</button></header>
      <Loaded read={read}>
        {({ items }) => items.length === 0
          ? <Panel><Empty>Nobody has subscribed. A webhook is told when tasks end, signed and retried like any task.</Empty></Panel>
          : items.map((webhook) => <One key={webhook.id} webhook={webhook} tell={tell} />)}
      </Loaded>
      {adding ? <New close={() => add(false)} tell={tell} /> : null}
      {secret ? (
        <Dialog title="Its secret, shown this once" close={() => tell("")}>
          <pre tabIndex={0} role="region" aria-label="Secret">{secret}</pre>
          <footer><button type="button" className="primary" onClick={() => tell("")}>I have it</button></footer>
        </Dialog>
      ) : null}
    </>
  );
}

function One({ webhook, tell }: { webhook: Webhook; tell: (secret: string) => void }) {
  const path = { webhook_id: webhook.id };
  return (
    <section className="panel" data-webhook={webhook.id}>
      <header>
        <h2>{webhook.url}</h2>
        {webhook.disabled ? <Tag tone="bad">off: {webhook.disabled}</Tag> : null}
      </header>
      <p className="soft">{webhook.events.join(", ")}{webhook.filter ? <> of <code>{webhook.filter}</code></> : null}; since <Ago at={webhook.created_at} /></p>
      <Deliveries webhook={webhook.id} />
      <footer className="actions">
        {webhook.disabled ? <Act tone="primary" work={async () => { await link.call("post", `${AT}/enable`, { path }); return "It is sent there again."; }}>Enable</Act> : null}
        <Act sure="The old secret signs beside the new one until the next rotation." label="A new secret"
          work={async () => { tell((await link.call("post", `${AT}/rotate`, { path })).secret); return null; }}>New secret</Act>
        <Act tone="danger" label="Unsubscribe" sure="Nothing more is sent there."
          work={async () => { await link.call("delete", AT, { path }); return "It is unsubscribed."; }}>Unsubscribe</Act>
      </footer>
    </section>
  );
}

function Deliveries({ webhook }: { webhook: string }) {
  const read = useRead("webhooks", ["deliveries", webhook], () => link.call("get", `${AT}/deliveries`, { path: { webhook_id: webhook } }));
  const replay = (task: Task) => async () => {
    await link.call("post", `${AT}/deliveries/{task_id}/replay`, { path: { webhook_id: webhook, task_id: task.id } });
    return "It is sent again, under its id.";
  };
  const columns: Column<Task>[] = [
    { head: "Status", cell: (task) => <StateBadge status={task.status} /> },
    { head: "Delivery", cell: (task) => <TaskLink id={task.id} /> },
    { head: "Said", grow: true, wide: true, cell: (task) => <span className="clip soft">{task.status === "completed" ? "" : task.error?.message}</span> },
    { head: "Attempts", num: true, wide: true, cell: (task) => task.attempt },
    { head: "Age", num: true, cell: (task) => <Ago at={task.created_at} /> },
    { head: "", num: true, cell: (task) => <Act label={`Replay ${task.id}`} work={replay(task)}>Replay</Act> },
  ];
  return <Loaded read={read}>{({ items }) => <Table label="Deliveries" columns={columns} rows={items} id={(task) => task.id} empty="Nothing was sent yet." />}</Loaded>;
}

const EVENTS = ["task.completed", "task.dead", "task.cancelled", "task.overdue"];

function New({ close, tell }: { close: () => void; tell: (secret: string) => void }) {
  const save = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const events = form.getAll("events") as Webhook["events"];
    const body = { url: String(form.get("url")), events, filter: String(form.get("filter")) };
    const done = await act(async () => { tell((await link.call("post", "/api/v1/webhooks", { body })).secret); return null; });
    if (done) close();
  };
  return (
    <Dialog title="A new webhook" close={close}>
      <form className="form" onSubmit={(event) => void save(event)}>
        <label>Address<input name="url" type="url" required placeholder="https://example.com/hook" /></label>
        <fieldset><legend>Of what</legend>{EVENTS.map((name) => <label key={name}><input type="checkbox" name="events" value={name} defaultChecked />{name}</label>)}</fieldset>
        <label>Filter <small>by type, queue, session, workflow</small><input name="filter" placeholder="type:report -queue:bulk" /></label>
        <footer><button type="button" onClick={close}>Not now</button><button type="submit" className="primary">Subscribe</button></footer>
      </form>
    </Dialog>
  );
}
