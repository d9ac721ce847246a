// Connections that stay open: streams that may fall silent, and sockets.

const SILENCE_MS = 60_000; // servers send a sign of life every 15 s

/** Ends a stream that has fallen silent. */
export class Silence {
  readonly #controller = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    this.#heard();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  listener(): TransformStream<Uint8Array, Uint8Array> {
    return new TransformStream({
      transform: (chunk, controller) => {
        this.#heard();
        controller.enqueue(chunk);
      },
    });
  }

  end(): void {
    clearTimeout(this.#timer);
  }

  #heard(): void {
    clearTimeout(this.#timer);
    const silent = () => this.#controller.abort(new DOMException("Silence", "TimeoutError"));
    this.#timer = setTimeout(silent, SILENCE_MS);
  }
}

/** What a socket says until it is closed. */
export async function* messages(socket: WebSocket, signal?: AbortSignal): AsyncGenerator<string, void, void> {
  const heard: string[] = [];
  let closed = false;
  let ring = () => {};
  const close = () => socket.close();
  socket.addEventListener("message", ({ data }) => {
    heard.push(String(data));
    ring();
  });
  const over = () => {
    closed = true;
    ring();
  };
  socket.addEventListener("close", over);
  socket.addEventListener("error", over);
  signal?.addEventListener("abort", close, { once: true });
  try {
    while (!closed || heard.length > 0) {
      const text = heard.shift();
      if (text !== undefined) yield text;
      else if (signal?.aborted) return;
      else await new Promise<void>((resolve) => (ring = resolve));
    }
  } finally {
    signal?.removeEventListener("abort", close);
    socket.close();
  }
}
