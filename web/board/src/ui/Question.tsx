// What a task asks a person, and the buttons that answer.

import { useState } from "react";
import { client, type Task } from "../api.ts";
import { useMay } from "../state/reads.ts";
import { act } from "./act.tsx";
import { Json } from "./Json.tsx";
import { Ago, TaskLink } from "./show.tsx";

interface Asked {
  question: string;
  action?: unknown;
  signal: string;
}

export const askedBy = (task: Task): Asked | undefined => task.progress?.data.question as Asked | undefined;

export function Question({ task }: { task: Task }) {
  const asked = askedBy(task);
  const acts = useMay("act");
  const [own, setOwn] = useState("");
  const [busy, setBusy] = useState(false);
  if (asked === undefined) return null;
  const answer = async (said: string) => {
    setBusy(true);
    await act(async () => {
      await client.signal(task.id, asked.signal, said);
      return `Answered: ${said}`;
    });
    setBusy(false);
  };
  return (
    <section className="panel question" data-question={task.id}>
      <header>
        <h2>{asked.question}</h2>
        <span className="soft"><TaskLink id={task.id}>{task.type}</TaskLink>, asked <Ago at={task.progress?.updated_at} /> ago</span>
      </header>
      {asked.action === undefined || asked.action === null ? null : <Json value={asked.action} label="What it would do" />}
      {acts ? (
        <form className="answers" onSubmit={(event) => { event.preventDefault(); if (own.trim()) void answer(own.trim()); }}>
          <button type="button" className="primary" disabled={busy} onClick={() => void answer("yes")}>Approve</button>
          <button type="button" className="danger" disabled={busy} onClick={() => void answer("no")}>Reject</button>
          <input value={own} onChange={(event) => setOwn(event.target.value)} aria-label="Another answer" placeholder="Another answer…" />
          <button type="submit" disabled={busy || own.trim() === ""}>Answer</button>
        </form>
      ) : null}
    </section>
  );
}
