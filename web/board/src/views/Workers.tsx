// Who works: how much each does, and when it was last heard of.

import { Link } from "wouter";
import { client, type Shapes } from "../api.ts";
import { count } from "../format.ts";
import { useMay, useWorkers } from "../state/reads.ts";
import { Act } from "../ui/act.tsx";
import { Ago, Empty, Facts, Loaded, Meter, Tag } from "../ui/show.tsx";
import { quoted, tasksAt } from "../words.ts";

type Worker = Shapes["Worker"];
const SQUARES = 64;
const OWN = "outlast."; // types that every worker runs

export function Workers() {
  const read = useWorkers(3_000); // heartbeats are no events
  return (
    <>
      <h1>Workers</h1>
      <Loaded read={read}>
        {(workers) => {
          if (workers.length === 0) return <Empty>No worker has come yet. <code>outlast worker app:app</code> starts one.</Empty>;
          const order = [...workers].sort((a, b) => Number(b.alive) - Number(a.alive) || b.seen_at.localeCompare(a.seen_at));
          return <div className="cards">{order.map((worker) => <One key={worker.id} worker={worker} />)}</div>;
        }}
      </Loaded>
    </>
  );
}

function One({ worker }: { worker: Worker }) {
  const operates = useMay("operate");
  const isHere = worker.pid !== 0; // one that works over HTTP is stopped where it runs
  return (
    <section className="panel" data-worker={worker.id}>
      <header>
        <h2>{worker.id}</h2>
        <span className="actions">
          <Tag tone={!worker.alive ? "bad" : worker.draining ? "warn" : "good"}>{!worker.alive ? "gone" : worker.draining ? "draining" : "alive"}</Tag>
          {operates && isHere && worker.alive && !worker.draining ? (
            <Act label={`Drain ${worker.id}`} sure="It takes nothing more, ends what it runs, and stops. Whatever started it decides whether another comes."
              work={async () => { await client.drainWorker(worker.id); return "It is told to drain; it looks every two seconds."; }}>Drain</Act>
          ) : null}
        </span>
      </header>
      {worker.alive ? <Slots worker={worker} /> : null}
      <Facts facts={[
        ["Running", <Link key="r" className="num" href={tasksAt(`status:running worker:${quoted(worker.id)}`)}>{count(worker.running)} of {count(worker.slots)}</Link>],
        ["Heard of", <><Ago at={worker.seen_at} /> ago</>],
        ["Up", worker.started_at ? <Ago key="u" at={worker.started_at} /> : null],
        ["Where", isHere ? `${worker.host}, process ${worker.pid}` : `${worker.host}, over HTTP`],
        ["Version", worker.version],
        ["Queues", worker.queues.length > 0 ? worker.queues.join(", ") : "all"],
        ["Types", worker.types.filter((type) => !type.startsWith(OWN)).join(", ")],
      ]} />
    </section>
  );
}

/** A square for each slot; a bar where there are too many. */
function Slots({ worker }: { worker: Worker }) {
  if (worker.slots > SQUARES) return <Meter used={worker.running} of={worker.slots} label={`Slots of ${worker.id}`} />;
  return (
    <div className="slots" role="img" aria-label={`${worker.running} of ${worker.slots} slots in use`}>
      {Array.from({ length: worker.slots }, (_, n) => <i key={n} className={n < worker.running ? "used" : ""} />)}
    </div>
  );
}
