// The types of tasks, and a form for each out of its JSON Schema.

import { exact } from "@outlast/client";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { client, type Shapes } from "../api.ts";
import { go, useParam } from "../router.ts";
import { useMay, useTypes } from "../state/reads.ts";
import { type Field, fieldsOf, lengthOf, payloadOf, type Schema, type Texts, textsOf, withItem, withoutItem } from "../state/schema.ts";
import { act } from "../ui/act.tsx";
import { parsed } from "../ui/EditPayload.tsx";
import { Json } from "../ui/Json.tsx";
import { Empty, Loaded, Panel, Tag } from "../ui/show.tsx";
import { type Column, Table } from "../ui/Table.tsx";

type Known = Shapes["TaskType"];

export function Types() {
  const read = useTypes();
  const [name, choose] = useParam("type");
  const columns: Column<Known>[] = [
    { head: "Type", cell: (type) => <button type="button" className="quiet id" aria-pressed={type.type === name} onClick={() => choose(type.type)}>{type.type}</button> },
    { head: "Runs", wide: true, cell: (type) => type.mode ?? "elsewhere" },
    { head: "Queue", wide: true, cell: (type) => type.queue ?? "–" },
    { head: "Workers", num: true, cell: (type) => type.workers === 0 ? <span className="wrong">0</span> : type.workers },
    { head: "About", grow: true, wide: true, cell: (type) => <span className="clip soft">{type.description}</span> },
  ];
  return (
    <>
      <h1>Types</h1>
      <Loaded read={read}>
        {(types) => {
          const chosen = types.find((type) => type.type === name);
          return (
            <div className="columns">
              <div><Panel><Table label="Types" columns={columns} rows={types} id={(type) => type.type} empty="No type is known: the server has no app, and no worker has announced any." /></Panel></div>
              <div>{chosen ? <One key={chosen.type} type={chosen} /> : <Panel><Empty>Choose a type to enqueue a task of it.</Empty></Panel>}</div>
            </div>
          );
        }}
      </Loaded>
    </>
  );
}

function One({ type }: { type: Known }) {
  const enqueues = useMay("enqueue");
  // A long list, or one that stands above the form, leaves it out of sight.
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    place.current?.scrollIntoView({ block: "nearest" });
  }, []);
  return (
    <div className="chosen" ref={place}>
      <Panel title={type.type} aside={type.mode ? <Tag>{type.mode}</Tag> : null}>
        {type.description ? <p className="soft">{type.description}</p> : null}
        {enqueues ? <Enqueue type={type} /> : null}
      </Panel>
      {type.schema ? <Panel><details><summary>JSON Schema of the payload</summary><Json value={type.schema} label="JSON Schema" /></details></Panel> : null}
    </div>
  );
}

const OPTIONS = ["queue", "priority", "delay", "unique_key", "session_id", "user_id", "tags"] as const;

function Enqueue({ type }: { type: Known }) {
  const fields = fieldsOf((type.schema ?? {}) as Schema);
  const [texts, write] = useState<Texts>({});
  const [json, setJson] = useState<string | null>(fields.length === 0 && type.schema === null ? "{}" : null);
  const [wrong, setWrong] = useState("");
  const payload = json === null ? payloadOf(fields, texts) : parsed(json);
  const send = async (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (typeof payload === "string") return setWrong(payload);
    setWrong("");
    const told = Object.fromEntries(new FormData(event.currentTarget)) as Record<string, string>;
    const { tags, ...plain } = Object.fromEntries(OPTIONS.map((name) => [name, told[`option ${name}`]?.trim()] as const).filter(([, value]) => value));
    const options = { ...plain, ...(tags ? { tags: tags.split(",").map((tag) => tag.trim()).filter(Boolean) } : {}) };
    await act(async () => {
      const task = await client.enqueue(type.type, payload, options as object);
      go(`/tasks/${task.id}`);
      return task.existing ? "It was there already." : "It is enqueued.";
    });
  };
  const turn = () => {
    setWrong("");
    if (json === null) return setJson(exact.stringify(typeof payload === "string" ? {} : payload, 2));
    if (typeof payload === "string") return setWrong(payload);
    const known = textsOf(fields, payload);
    if (!isAlike(payloadOf(fields, known), payload)) return setWrong("This payload says what the form has no field for: it stays JSON.");
    write(known);
    setJson(null);
  };
  return (
    <form className="form" onSubmit={(event) => void send(event)}>
      {json === null
        ? fields.map((field) => <Input key={field.path} field={field} texts={texts} write={write} />)
        : <label>Payload<textarea className="code" rows={8} value={json} spellCheck={false} onChange={(event) => setJson(event.target.value)} /></label>}
      {wrong ? <p className="refused" role="alert">{wrong}</p> : null}
      <details>
        <summary>Options</summary>
        <div className="row">{OPTIONS.map((name) => <label key={name}>{name}<input name={`option ${name}`} placeholder={HINTS[name] ?? ""} /></label>)}</div>
      </details>
      <footer className="actions">
        <button type="submit" className="primary">Enqueue</button>
        <button type="button" onClick={turn}>{json === null ? "As JSON" : "As a form"}</button>
      </footer>
    </form>
  );
}

const HINTS: Partial<Record<(typeof OPTIONS)[number], string>> = { priority: "normal", delay: "as 10m", tags: "apart by commas", queue: "default" };

interface Told { field: Field; texts: Texts; write: (texts: Texts) => void }

function Input({ field, texts, write: tell }: Told) {
  const { name, path, kind, required, about } = field;
  const text = texts[path] ?? field.initial;
  const write = (told: string) => tell({ ...texts, [path]: told });
  const said = <>{name}{required ? "" : <small> optional</small>}{about ? <small>{required ? " " : ", "}{about}</small> : null}</>;
  if (kind === "object") {
    return (
      <fieldset className="form">
        <legend>{said}</legend>
        {field.fields.map((one) => <Input key={one.path} field={one} texts={texts} write={tell} />)}
      </fieldset>
    );
  }
  if (kind === "list") {
    return (
      <fieldset className="form">
        <legend>{said}</legend>
        {Array.from({ length: lengthOf(field, texts) }, (_, n) => (
          <div key={n} className="item">
            <Input field={field.item(n)} texts={texts} write={tell} />
            <button type="button" aria-label={`Remove ${name} ${n + 1}`} onClick={() => tell(withoutItem(field, texts, n))}>✕</button>
          </div>
        ))}
        <button type="button" aria-label={`Add to ${name}`} onClick={() => tell(withItem(field, texts))}>Add</button>
      </fieldset>
    );
  }
  if (kind === "boolean") {
    return <label><input type="checkbox" checked={text === "true"} onChange={(event) => write(String(event.target.checked))} />{said}</label>;
  }
  if (kind === "choice") {
    return (
      <label><span>{said}</span>
        <select value={text} required={required && !field.nullable} onChange={(event) => write(event.target.value)}>
          {text === "" || !required || field.nullable ? <option value="" /> : null}
          {field.choices.map((choice) => <option key={String(choice)}>{String(choice)}</option>)}
        </select>
      </label>
    );
  }
  if (kind === "number" || kind === "integer") {
    return <label><span>{said}</span><input type="number" step={kind === "integer" ? 1 : "any"} min={field.schema.minimum} max={field.schema.maximum} required={required && !field.nullable} value={text} onChange={(event) => write(event.target.value)} /></label>;
  }
  return (
    <label><span>{said}</span>
      <textarea rows={kind === "json" ? 4 : 2} className={kind === "json" ? "code" : ""} placeholder={kind === "json" ? "JSON" : ""}
        required={required && kind === "json" && !field.nullable} value={text} onChange={(event) => write(event.target.value)} />
    </label>
  );
}

/** The same fields with the same values, in whatever order. */
function isAlike(one: unknown, other: unknown): boolean {
  return exact.stringify(ordered(one)) === exact.stringify(ordered(other));
}

function ordered(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(ordered);
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(fields.map(([name, field]) => [name, ordered(field)]));
}
