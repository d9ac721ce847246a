// What died, by how it died: run all of one kind again, look at one, or give them up.

import { useState } from "react";
import { Link } from "wouter";
import { client, type Shapes, type Task } from "../api.ts";
import { count } from "../format.ts";
import { useDead, useMay } from "../state/reads.ts";
import { act } from "../ui/act.tsx";
import { BulkAct } from "../ui/Bulk.tsx";
import { EditPayload } from "../ui/EditPayload.tsx";
import { Ago, Empty, Loaded, Panel, Tag, TaskLink } from "../ui/show.tsx";
import { alike, tasksAt } from "../words.ts";

export function Failures() {
  const read = useDead();
  return (
    <>
      <h1>Failures</h1>
      <Loaded read={read}>
        {(groups) => groups.length === 0
          ? <Panel><Empty>Nothing is dead. What dies is kept here, by error, until it is redriven or deleted.</Empty></Panel>
          : groups.map((group) => <Group key={`${group.fingerprint} ${group.type}`} group={group} />)}
      </Loaded>
    </>
  );
}

function Group({ group }: { group: Shapes["DeadGroup"] }) {
  const operates = useMay("operate");
  const [editing, edit] = useState<Task>();
  const { example } = group;
  const filter = alike(group);
  return (
    <section className="panel" data-group={group.fingerprint ?? group.reason}>
      <header>
        <h2>{group.error_type ?? group.reason ?? "Dead"} <span className="soft">in {group.type}</span></h2>
        <span className="soft num">{count(group.count)} dead, last <Ago at={group.last_at} /> ago</span>
      </header>
      <p className="wrong">{group.message}</p>
      <footer className="actions">
        {operates ? (
          <>
            <BulkAct action="retry" filters={[filter]} label="Redrive" />
            {example ? <button type="button" onClick={() => void act(async () => { edit(await client.get(example)); return null; })}>Edit the newest</button> : null}
            <BulkAct action="delete" filters={[filter]} label="Purge" />
          </>
        ) : null}
        <Link href={tasksAt(filter)} className="button">Show them</Link>
        {example ? <span>Newest: <TaskLink id={example} /></span> : null}
        {group.reason ? <Tag>{group.reason}</Tag> : null}
        {group.fingerprint ? <code className="soft">{group.fingerprint}</code> : null}
      </footer>
      {editing ? <EditPayload task={editing} how="retry" close={() => edit(undefined)} /> : null}
    </section>
  );
}
