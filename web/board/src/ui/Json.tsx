// A value as text: it is never markup, whoever wrote it.

import { exact } from "@outlast/client";
import { useState } from "react";

const MOST = 50_000;

export function textOf(value: unknown): string {
  return typeof value === "string" ? value : exact.stringify(value, 2);
}

export function Json({ value, label }: { value: unknown; label: string }) {
  const [all, setAll] = useState(false);
  const text = textOf(value);
  const isProse = typeof value === "string";
  return (
    <div className="json">
      <pre className={isProse ? "prose" : ""} tabIndex={0} role="region" aria-label={label}>
        {all ? text : text.slice(0, MOST)}
      </pre>
      {text.length > MOST && !all ? (
        <button type="button" onClick={() => setAll(true)}>Show all {text.length.toLocaleString("en")} characters</button>
      ) : null}
    </div>
  );
}
