// Server-sent events out of bytes.

/** One event on the wire. `data` is undefined for a frame that only moves the cursor. */
export interface Frame {
  kind: string;
  id: string | undefined;
  data: string | undefined;
}

/** The frames of a body, as they come; comments are left out. */
export async function* frames(body: ReadableStream<Uint8Array>): AsyncGenerator<Frame, void, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let fields: Record<string, string> = {};
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const raw of lines) {
        const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
        const mark = line.indexOf(":");
        if (line === "") {
          yield { kind: fields.event ?? "message", id: fields.id, data: fields.data };
          fields = {};
        } else if (mark !== 0) {
          const name = mark < 0 ? line : line.slice(0, mark);
          fields[name] = mark < 0 ? "" : line.slice(mark + 1).replace(/^ /, "");
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
