// Who you are, how the page looks, who else may come in, and who did what.

import { type FormEvent, useState } from "react";
import { link, type Shapes } from "../api.ts";
import { useHealth, useMay, useMe, useRead } from "../state/reads.ts";
import { keep, useSettings } from "../state/settings.ts";
import { Act, act, Dialog } from "../ui/act.tsx";
import { Facts, Loaded, Moment, Panel, Tag, Until } from "../ui/show.tsx";
import { type Column, Table } from "../ui/Table.tsx";

export function Settings() {
  const admin = useMay("admin");
  const operates = useMay("operate");
  return (
    <>
      <h1>Settings</h1>
      <div className="columns">
        <div>
          <Looks />
          {admin ? <Keys /> : null}
        </div>
        <div><Server /></div>
      </div>
      {operates ? <Audit /> : null}
    </>
  );
}

function Looks() {
  const { theme, utc } = useSettings();
  return (
    <Panel title="This browser">
      <div className="form row">
        <label>Theme
          <select value={theme} onChange={(event) => keep({ theme: event.target.value as typeof theme })}>
            <option value="system">as the system</option><option value="light">light</option><option value="dark">dark</option>
          </select>
        </label>
        <label>Times
          <select value={utc ? "utc" : "local"} onChange={(event) => keep({ utc: event.target.value === "utc" })}>
            <option value="local">local</option><option value="utc">UTC</option>
          </select>
        </label>
      </div>
    </Panel>
  );
}

function Server() {
  const me = useMe();
  const health = useHealth();
  return (
    <Panel title="The server">
      <Loaded read={health}>
        {({ status, components: { engine, workers, circuit_breaker } }) => (
          <Facts facts={[
            ["You are", `${me.name}, ${me.role}${me.read_only ? ", read-only" : ""}`],
            ["Health", <Tag key="h" tone={status === "healthy" ? "good" : status === "degraded" ? "warn" : "bad"}>{status}</Tag>],
            ["Engine", engine ? `${String(engine.status)}, ${String(engine.durability ?? "")}` : null],
            ["Workers", workers ? `${String(workers.alive)} alive` : null],
            ["Circuits", circuit_breaker ? String(circuit_breaker.status) : null],
            ["API", <a key="a" href="docs">its documentation</a>],
          ]} />
        )}
      </Loaded>
    </Panel>
  );
}

type Key = Shapes["Key"];

function Keys() {
  const read = useRead("audit", ["keys"], () => link.call("get", "/api/v1/keys"));
  const [made, tell] = useState("");
  const make = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const told = Object.fromEntries(new FormData(form)) as Record<string, string>;
    const body = { role: told.role as Key["role"], ...(told.name ? { name: told.name } : {}), ...(told.expires ? { expires: told.expires } : {}), read_only: told.read_only === "on" };
    void act(async () => { tell((await link.call("post", "/api/v1/keys", { body })).key); form.reset(); return null; });
  };
  const columns: Column<Key>[] = [
    { head: "Key", cell: (key) => <>{key.name} <code className="soft">{key.id}</code></> },
    { head: "Role", cell: (key) => <>{key.role}{key.read_only ? <Tag>read-only</Tag> : null}</> },
    { head: "Only", wide: true, cell: (key) => [...key.queues, ...key.types].join(", ") || "–" },
    { head: "Until", wide: true, cell: (key) => (key.expires_at ? <Until at={key.expires_at} /> : "it is revoked") },
    { head: "", cell: (key) => <Act tone="danger" label={`Revoke ${key.name}`} sure="Whoever uses it is let in no more, within two seconds."
      work={async () => { await link.call("delete", "/api/v1/keys/{key_id}", { path: { key_id: key.id } }); return "It is revoked."; }}>Revoke</Act> },
  ];
  return (
    <Panel title="API keys">
      <Loaded read={read}>{({ items }) => <Table label="API keys" columns={columns} rows={items} id={(key) => key.id} empty="There are none: the server listens on loopback only, and whoever reaches it may do everything." />}</Loaded>
      <details>
        <summary>Make one</summary>
        <form className="form" onSubmit={make}>
          <div className="row">
            <label>Role<select name="role" defaultValue="client"><option>admin</option><option>operator</option><option>client</option><option>worker</option></select></label>
            <label>Name<input name="name" maxLength={200} /></label>
            <label>For <small>as 90d</small><input name="expires" /></label>
            <label><input type="checkbox" name="read_only" />read-only</label>
            <button type="submit">Make it</button>
          </div>
          <p className="soft">The first key closes the server to everyone without one: make one for yourself first, and log in with it.</p>
        </form>
      </details>
      {made ? (
        <Dialog title="The key, shown this once" close={() => tell("")}>
          <pre tabIndex={0} role="region" aria-label="Key">{made}</pre>
          <footer><button type="button" className="primary" onClick={() => tell("")}>I have it</button></footer>
        </Dialog>
      ) : null}
    </Panel>
  );
}

const PAGES = 40;

interface Entry { id: string; at: string; by: string; role: string; method: string; path: string; status: number }

/** From the beginning of the log, as far as one wants to read. */
async function audited(): Promise<{ entries: Entry[]; more: boolean }> {
  const entries: Entry[] = [];
  let after = "^";
  for (let n = 0; n < PAGES; n += 1) {
    const { items, next } = await link.call("get", "/api/v1/events/poll", { query: { kinds: "audit", after } });
    entries.push(...items.map(({ id, data }) => ({ id, ...(data as Omit<Entry, "id">) })));
    if (items.length === 0 || next === after) return { entries: entries.reverse(), more: false };
    after = next;
  }
  return { entries: entries.reverse(), more: true };
}

function Audit() {
  const read = useRead("audit", ["log"], audited);
  const columns: Column<Entry>[] = [
    { head: "When", cell: (entry) => <Moment at={entry.at} /> },
    { head: "Who", cell: (entry) => <>{entry.by} <span className="soft">{entry.role}</span></> },
    { head: "What", grow: true, cell: (entry) => <code title={entry.path}>{entry.method} {entry.path.replace(/^.*\/api\/v1/, "")}</code> },
    { head: "Answer", num: true, wide: true, cell: (entry) => <Tag tone={entry.status < 400 ? "good" : "bad"}>{entry.status}</Tag> },
  ];
  return (
    <Panel title="Audit" aside={<span className="soft">what operators and admins changed</span>}>
      <Loaded read={read}>
        {({ entries, more }) => (
          <>
            <div className="audit"><Table label="Audit log" columns={columns} rows={entries.slice(0, 200)} id={(entry) => entry.id} empty="Nobody has changed anything yet." /></div>
            {more || entries.length > 200 ? <p className="soft">There is more: <code>GET /api/v1/events?kinds=audit</code> has it all.</p> : null}
          </>
        )}
      </Loaded>
    </Panel>
  );
}
