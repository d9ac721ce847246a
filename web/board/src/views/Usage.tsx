// What models were used: tokens, cost, who; and how much of the budgets is left.

import { useMemo } from "react";
import { link, type Shapes } from "../api.ts";
import { count, money, span } from "../format.ts";
import { useParam } from "../router.ts";
import { useRead } from "../state/reads.ts";
import { Chart } from "../ui/Chart.tsx";
import { Empty, Loaded, Meter, Panel, Tag, Until } from "../ui/show.tsx";
import { type Column, Table } from "../ui/Table.tsx";

const BY = ["model", "type", "queue", "user", "session", "day"] as const;
type By = (typeof BY)[number];
type Item = Shapes["UsageItem"];

export function Usage() {
  const [told, setBy] = useParam("by");
  const by: By = BY.find((one) => one === told) ?? "model";
  const sums = useRead("usage", ["by", by], () => link.call("get", "/api/v1/usage", { query: { by } }));
  return (
    <>
      <h1>Usage</h1>
      <Loaded read={sums}>
        {({ total }) => (
          <div className="tiles">
            <div className="tile"><b>{count(total.tokens)}</b><span className="soft">tokens in 30 days</span></div>
            <div className="tile"><b>{count(total.input_tokens)}</b><span className="soft">went in</span></div>
            <div className="tile"><b>{count(total.output_tokens)}</b><span className="soft">came out</span></div>
            <div className="tile"><b>{money(total.cost)}</b><span className="soft">cost</span></div>
            {total.more.answers ? <div className="tile"><b>{firstToken(total)}</b><span className="soft">to the first token</span></div> : null}
          </div>
        )}
      </Loaded>
      <Daily />
      <Panel title="Sums" aside={(
        <span className="chips" role="group" aria-label="Summed by">
          {BY.map((one) => <button key={one} type="button" aria-pressed={one === by} onClick={() => setBy(one)}>{one}</button>)}
        </span>
      )}>
        <Loaded read={sums}>{({ items }) => <Sums by={by} items={items} />}</Loaded>
      </Panel>
      <Budgets />
    </>
  );
}

const DAY_S = 86_400;

function Daily() {
  const read = useRead("usage", ["by", "day"], () => link.call("get", "/api/v1/usage", { query: { by: "day" } }));
  const series = useMemo(() => {
    const items = new Map((read.data?.items ?? []).map((item) => [item.day, item]));
    const last = Math.floor(Date.now() / 1000 / DAY_S);
    const days = Array.from({ length: 30 }, (_, n) => (last - 29 + n) * DAY_S);
    const tokens = days.map((at) => items.get(new Date(at * 1000).toISOString().slice(0, 10))?.tokens ?? 0);
    return { at: days, lines: [{ name: "tokens", tone: "blue", values: tokens }] };
  }, [read.data]);
  return <Panel title="Tokens per day" aside={<span className="soft">UTC</span>}><Loaded read={read}>{() => <Chart series={series} label="Tokens per day" />}</Loaded></Panel>;
}

const OWN: readonly string[] = ["first_token_ms", "answers"];

/** How long an answer took to begin, on average. */
function firstToken({ more }: Pick<Item, "more">): string {
  return more.answers ? span((more.first_token_ms ?? 0) / more.answers) : "–";
}

function Sums({ by, items }: { by: By; items: readonly Item[] }) {
  const extra = [...new Set(items.flatMap((item) => Object.keys(item.more)))].filter((name) => !OWN.includes(name)).slice(0, 6);
  const speaks = items.some((item) => item.more.answers);
  const columns: Column<Item>[] = [
    { head: by, cell: (item) => item[by] ?? <span className="soft">none</span> },
    { head: "Reports", num: true, wide: true, cell: (item) => count(item.reports) },
    { head: "In", num: true, wide: true, cell: (item) => count(item.input_tokens) },
    { head: "Out", num: true, wide: true, cell: (item) => count(item.output_tokens) },
    { head: "Tokens", num: true, cell: (item) => count(item.tokens) },
    { head: "Cost", num: true, cell: (item) => money(item.cost) },
    ...(speaks ? [{ head: "First token", num: true, wide: true, cell: firstToken }] : []),
    ...extra.map((name): Column<Item> => ({ head: name.replace(/_/g, " "), num: true, wide: true, cell: (item) => (item.more[name] === undefined ? "–" : count(item.more[name])) })),
  ];
  return <Table label={`Usage by ${by}`} columns={columns} rows={items} id={(item) => String(item[by] ?? "")} empty={<>Nothing was told: handlers do it with <code>ctx.usage(…)</code>.</>} />;
}

function Budgets() {
  const read = useRead("usage", ["budgets"], () => link.call("get", "/api/v1/budgets"));
  const columns: Column<Shapes["KnownBudget"]>[] = [
    { head: "Budget", cell: (budget) => <b>{budget.key}</b> },
    { head: "Amount", cell: (budget) => [budget.cost, budget.tokens && `${budget.tokens} tokens`].filter(Boolean).join(", ") },
    { head: "Then", wide: true, cell: (budget) => <Tag>{budget.then === "hold" ? "tasks wait" : "refused"}</Tag> },
    {
      head: "Used", grow: true, cell: (budget) => budget.used.length === 0 ? <span className="soft">nothing</span> : (
        <ul className="uses">
          {budget.used.slice(0, 5).map((use) => (
            <li key={`${use.key} ${use.measure}`}>
              <span className="withmeter"><Meter used={use.used} of={use.amount} label={`${use.key}: ${use.measure}`} />
                <span className="num">{money(use.used)} of {money(use.amount)} {use.measure}</span></span>
              <span className="soft">{use.key}{use.resets_at ? <>, anew <Until at={use.resets_at} /></> : null}{use.waiting ? `, ${use.waiting} wait` : ""}</span>
            </li>
          ))}
        </ul>
      ),
    },
  ];
  return (
    <Panel title="Budgets">
      <Loaded read={read}>{({ items }) => items.length === 0 ? <Empty>No budget is set: <code>Budget("user:*", cost="5.00/day")</code> in code, or PUT /budgets.</Empty> : <Table label="Budgets" columns={columns} rows={items} id={(budget) => budget.key} empty="" />}</Loaded>
    </Panel>
  );
}
