// What died, by how it died: run all of one kind again, look at one, or give them up.

import { Link } from "wouter";
import type { Shapes } from "../api.ts";
import { count } from "../format.ts";
import { useDead, useMay } from "../state/reads.ts";
import { BulkAct } from "../ui/Bulk.tsx";
import { Ago, Empty, Loaded, Panel, Tag, TaskLink } from "../ui/show.tsx";
import { quoted, tasksAt } from "../words.ts";

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
  // Without a fingerprint (it expired, its worker was lost) its reason tells the group apart.
  const mark = group.fingerprint ? `error:${group.fingerprint}` : `reason:${quoted(group.reason ?? "")}`;
  const filter = `status:dead type:${quoted(group.type)} ${mark}`;
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
            <BulkAct action="delete" filters={[filter]} label="Purge" />
          </>
        ) : null}
        <Link href={tasksAt(filter)} className="button">Show them</Link>
        {group.example ? <span>Newest: <TaskLink id={group.example} /></span> : null}
        {group.reason ? <Tag>{group.reason}</Tag> : null}
        {group.fingerprint ? <code className="soft">{group.fingerprint}</code> : null}
      </footer>
    </section>
  );
}
