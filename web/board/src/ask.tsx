// The page for end users: hand over a text, watch the answer come, close the tab, come back.
//
// Whose it is: a signed token of an application (`ask#token=…`), else this browser's own session.
// A token lists no types: what it is for is said beside it (`&offer=draw:prompt`), else it is summaries.

import { Client, exact, randomId, type Task } from "@outlast/client";
import { QueryClientProvider } from "@tanstack/react-query";
import { type FormEvent, StrictMode, useCallback, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { base, isRefused, messageOf, type Shapes } from "./api.ts";
import { FINAL } from "./words.ts";
import { excerpt } from "./format.ts";
import { useStory } from "./state/follow.ts";
import { queries } from "./state/reads.ts";
import { dress } from "./state/settings.ts";
import { Contents } from "./ui/Contents.tsx";
import { textOf } from "./ui/Json.tsx";
import { Ago, Empty, Progress, StateBadge } from "./ui/show.tsx";
import "./theme.css";

const TOKEN = "outlast.ask.token";
const OFFERS = "outlast.ask.offers";
const SESSION = "outlast.ask.session";

/** The token stays in this tab and leaves the address: addresses are copied and logged. */
function tokenOf(): string | undefined {
  const told = new URLSearchParams(location.hash.slice(1));
  const token = told.get("token");
  if (token !== null) {
    sessionStorage.setItem(TOKEN, token);
    sessionStorage.setItem(OFFERS, told.getAll("offer").join("\n"));
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(TOKEN) ?? undefined;
}

/** What the link has offered: types, and the field of each that takes the text. */
function offered(): Kind[] {
  const offers = (sessionStorage.getItem(OFFERS) ?? "").split("\n").filter(Boolean);
  return offers.map((offer) => {
    const [type = "", field = SUMMARY.field] = offer.split(/:(?=[^:]*$)/);
    return kindOf(type, field);
  });
}

function sessionOf(): string {
  const session = localStorage.getItem(SESSION) ?? `ask-${randomId()}`;
  localStorage.setItem(SESSION, session);
  return session;
}

const token = tokenOf();
const client = new Client({ url: base, json: exact, ...(token === undefined ? {} : { key: token }) });
/** With a token the server knows the session, and shows nothing of others. */
const mine = token === undefined ? { session_id: sessionOf() } : {};

interface Kind {
  type: string;
  field: string;
  name: string;
}

const SUMMARY: Kind = { type: "summarize", field: "content", name: "Summarise a text" };

const kindOf = (type: string, field: string): Kind =>
  type === SUMMARY.type ? { ...SUMMARY, field } : { type, field, name: type.replace(/[._-]/g, " ") };

/** The types that take one text and need nothing else. */
function kindsOf(types: readonly Shapes["TaskType"][]): Kind[] {
  return types.flatMap(({ type, schema }) => {
    const { required = [], properties = {} } = (schema ?? {}) as {
      required?: string[];
      properties?: Record<string, { type?: string }>;
    };
    const [field] = required;
    if (required.length !== 1 || field === undefined || properties[field]?.type !== "string") return [];
    return [kindOf(type, field)];
  }).sort((a, b) => Number(b.type === SUMMARY.type) - Number(a.type === SUMMARY.type));
}

function Ask() {
  const [tasks, setTasks] = useState<readonly Task[]>();
  const [kinds, setKinds] = useState<readonly Kind[]>(() => (token !== undefined && offered().length > 0 ? offered() : [SUMMARY]));
  const [open, setOpen] = useState<string>();
  const [refusal, setRefusal] = useState("");
  const read = useCallback(async () => {
    try {
      const page = await client.page({ ...mine, limit: 50 });
      setTasks(page.items);
      setRefusal("");
      setOpen((before) => before ?? page.items[0]?.id);
    } catch (error) {
      setRefusal(isRefused(error, 401) ? "This page needs a link from your application, or a login." : messageOf(error));
      setTasks((before) => before ?? []);
    }
  }, []);
  useEffect(() => {
    void read();
    if (token !== undefined) return; // it may not list types
    client.types().then((types) => setKinds(kindsOf(types)), () => undefined);
  }, [read]);

  const send = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const told = new FormData(form);
    const kind = kinds.find(({ type }) => type === told.get("kind")) ?? kinds[0];
    if (kind === undefined) return;
    try {
      const made = await client.enqueue(kind.type, { [kind.field]: String(told.get("text")) }, mine);
      form.reset();
      setRefusal("");
      setOpen(made.id);
      await read();
    } catch (error) {
      setRefusal(messageOf(error));
    }
  };
  const shown = tasks?.find(({ id }) => id === open);
  return (
    <main className="ask">
      <h1>What shall be done?</h1>
      <form className="panel form" onSubmit={(event) => void send(event)}>
        {kinds.length > 1 ? (
          <label>What
            <select name="kind">{kinds.map(({ type, name }) => <option key={type} value={type}>{name}</option>)}</select>
          </label>
        ) : null}
        <label>{kinds.length > 1 ? "Text" : kinds[0]?.name}
          <textarea name="text" rows={6} required placeholder="Paste a text of a few paragraphs. You may close this page while it is worked on." />
        </label>
        <footer><button type="submit" className="primary" disabled={kinds.length === 0}>Start</button></footer>
      </form>
      {refusal ? <p className="refused" role="alert">{refusal}</p> : null}
      {shown ? <Answer key={shown.id} task={shown} ended={read} /> : null}
      <section className="panel">
        <h2>Yours</h2>
        {tasks?.length === 0 ? <Empty>Nothing yet. What you start is kept here, also when you close the page.</Empty> : null}
        <ul className="mine">
          {(tasks ?? []).map((task) => (
            <li key={task.id}>
              <button type="button" className="quiet" aria-pressed={task.id === open} onClick={() => setOpen(task.id)}>
                <StateBadge status={task.status} /><span className="clip">{excerpt(Object.values(task.payload)[0] ?? "", 120)}</span>
                <span className="soft num"><Ago at={task.created_at} /></span>
              </button>
            </li>
          ))}
        </ul>
      </section>
    </main>
  );
}

function Answer({ task, ended }: { task: Task; ended: () => Promise<void> }) {
  const isOver = FINAL.includes(task.status);
  const story = useStory(client, task.id, !isOver);
  useEffect(() => {
    if (story.isOver && !isOver) void ended();
  }, [story.isOver, isOver, ended]);
  const cancel = () => void client.cancel(task.id).then(ended, ended);
  return (
    <section className="panel" aria-label="Answer" data-answer={task.status}>
      <header>
        <h2>{isOver ? (task.status === "completed" ? "Done" : "It did not work out") : "On its way"}</h2>
        {isOver ? null : <button type="button" onClick={cancel}>Stop</button>}
      </header>
      {!isOver && story.progress ? <Progress percent={story.progress.percent} message={story.progress.message} /> : null}
      {task.status === "completed" ? <Contents of={task.result} token={token} /> : null}
      {task.status === "completed" ? <pre className="prose">{textOf(task.result)}</pre> : (
        <pre className="prose" aria-live="polite">{story.output}{isOver ? null : <span className="caret" aria-hidden="true" />}</pre>
      )}
      {task.status === "dead" ? <p className="wrong">{task.error?.message ?? task.reason}</p> : null}
      {task.status === "cancelled" ? <p className="soft">Stopped: {task.reason}</p> : null}
    </section>
  );
}

addEventListener("hashchange", () => location.reload()); // another link, in the same tab
dress();
const place = document.getElementById("root");
if (place) {
  createRoot(place).render(
    <StrictMode>
      <QueryClientProvider client={queries}><Ask /></QueryClientProvider>
    </StrictMode>,
  );
}
