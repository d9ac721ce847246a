// What a task asks a person, and the buttons that answer.

import { useState } from "react";
import { client, type Shapes } from "../api.ts";
import { useMay } from "../state/reads.ts";
import { act } from "./act.tsx";
import { Json } from "./Json.tsx";
import { Ago, TaskLink, Until } from "./show.tsx";

export function Question({ asked }: { asked: Shapes["Approval"] }) {
  const acts = useMay("act");
  const [own, setOwn] = useState("");
  const [busy, setBusy] = useState(false);
  const answer = async (said: string) => {
    setBusy(true);
    await act(async () => {
      await client.respond(asked.task_id, said);
      return `Answered: ${said}`;
    });
    setBusy(false);
  };
  return (
    <section className="panel question" data-question={asked.task_id}>
      <header>
        <h2>{asked.question}</h2>
        <span className="soft"><TaskLink id={asked.task_id}>{asked.type}</TaskLink>, asked <Ago at={asked.asked_at} /> ago{asked.deadline ? <>, runs out <Until at={asked.deadline} /></> : null}</span>
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
