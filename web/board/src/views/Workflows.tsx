// Workflows: how far each is, its graph while it runs, and how it was undone.

import { Link } from "wouter";
import { client, isRefused, link, type Shapes } from "../api.ts";
import { between, percent } from "../format.ts";
import { go, useParam } from "../router.ts";
import { useMay, useRead } from "../state/reads.ts";
import { Act } from "../ui/act.tsx";
import { Graph } from "../ui/Graph.tsx";
import { Json } from "../ui/Json.tsx";
import { Ago, Empty, Facts, Loaded, Moment, Panel, Progress, StateBadge, TaskLink } from "../ui/show.tsx";
import { type Column, Table } from "../ui/Table.tsx";

type Item = Shapes["WorkflowItem"];
type Whole = Shapes["Workflow"];
const STATUSES = ["running", "undoing", "completed", "dead", "cancelled", "undone", "undo_failed"];

export function Workflows() {
  const [status, choose] = useParam("status");
  const read = useRead("workflows", ["list", status], () => link.call("get", "/api/v1/workflows", { query: { status, limit: 100 } }));
  const columns: Column<Item>[] = [
    { head: "Status", cell: (flow) => <StateBadge status={flow.status} /> },
    { head: "Workflow", cell: (flow) => <Link className="id" href={`/workflows/${flow.id}`}>{flow.name}</Link> },
    { head: "Done", grow: true, cell: (flow) => <Progress percent={flow.percent} /> },
    { head: "Tasks", wide: true, cell: (flow) => <span className="soft">{Object.entries(flow.counts).map(([name, n]) => `${n} ${name}`).join(", ")}</span> },
    { head: "Age", num: true, cell: (flow) => <Ago at={flow.created_at} /> },
  ];
  return (
    <>
      <h1>Workflows</h1>
      <div className="chips" role="group" aria-label="By status">
        {STATUSES.map((one) => (
          <button key={one} type="button" aria-pressed={one === status} onClick={() => choose(one === status ? "" : one)}><StateBadge status={one} /></button>
        ))}
      </div>
      <Panel>
        <Loaded read={read}>{({ items }) => <Table label="Workflows" columns={columns} rows={items} id={(flow) => flow.id} empty={<>No workflow{status ? ` is ${status.replace("_", " ")}` : " yet: app.workflow(…) makes one, or POST /workflows"}.</>} />}</Loaded>
      </Panel>
    </>
  );
}

export function WorkflowView({ id }: { id: string }) {
  const read = useRead("workflows", ["one", id], () => client.workflow(id));
  if (isRefused(read.error, 404)) return <Empty>There is no workflow {id}, or it was deleted.</Empty>;
  return <Loaded read={read}>{(flow) => <One flow={flow} />}</Loaded>;
}

function One({ flow }: { flow: Whole }) {
  const acts = useMay("act");
  const operates = useMay("operate");
  const drawn = flow.nodes.filter(({ kind }) => kind !== "undo");
  const undone = flow.undo.flatMap((undo) => flow.nodes.find((node) => node.id === undo) ?? []);
  const again = async () => {
    const { id } = await client.retryWorkflow(flow.id);
    go(`/workflows/${id}`);
    return "It goes on from where it died.";
  };
  return (
    <article className="task">
      <header className="head">
        <h1>{flow.name}</h1>
        <StateBadge status={flow.status} />
        <span className="soft num">{percent(flow.percent / 100)} done</span>
        <span className="gap" />
        <div className="actions">
          {operates && ["dead", "cancelled", "undo_failed"].includes(flow.status) ? <Act tone="primary" work={again}>Go on</Act> : null}
          {acts && flow.status === "running" ? (
            <Act tone="danger" label="Cancel the workflow" sure="What waits or runs is stopped; what was done is undone where it says how."
              work={async () => { await client.cancelWorkflow(flow.id, { reason: "cancelled in the dashboard" }); return "It is told to stop."; }}>Cancel</Act>
          ) : null}
        </div>
      </header>
      <p className="soft code ids">{flow.id}</p>
      <Panel title="Graph" aside={flow.truncated ? <span className="soft">the newest 2,000 nodes</span> : null}><Graph nodes={drawn} label={`Graph of ${flow.name}`} /></Panel>
      <div className="columns">
        <div>
          {flow.error && flow.status !== "completed" ? <Panel title="Error"><p className="wrong"><b>{flow.error.type}</b>: {flow.error.message}</p></Panel> : null}
          {flow.status === "completed" ? <Panel title="Result"><Json value={flow.result} label="Result" /></Panel> : null}
          {undone.length > 0 ? (
            <Panel title="Undone, in this order">
              <ol className="undo">{undone.map((node) => <li key={node.id}><StateBadge status={node.status} /> <TaskLink id={node.id}>{node.name}</TaskLink> <span className="soft">by {node.type}</span></li>)}</ol>
            </Panel>
          ) : null}
        </div>
        <Panel title="About it">
          <Facts facts={[
            ["Created", <Moment key="c" at={flow.created_at} />],
            ["Ended", flow.completed_at ? <><Moment at={flow.completed_at} /> <span className="soft keep">after {between(flow.created_at, flow.completed_at)}</span></> : null],
            ["Reason", flow.reason],
            ["Session", flow.session_id],
            ["User", flow.user_id],
            ["Tags", flow.tags.join(", ")],
            ["Runs again", flow.origin ? <Link key="o" href={`/workflows/${flow.origin}`}>the one before</Link> : null],
            ["At its end", <TaskLink key="t" id={flow.id}>its task</TaskLink>],
          ]} />
        </Panel>
      </div>
    </article>
  );
}
