// What a task has stored: pictures are drawn here; of the rest it is said what it is.
//
// They are fetched as everything else is, for an end user's token is a header. What comes is drawn
// as pixels: nothing in it can be more than a picture.

import { useEffect, useMemo, useRef, useState } from "react";
import { base } from "../api.ts";
import { contentsOf } from "../format.ts";

const MOST = 12;

export function Contents({ of, token }: { of: unknown; token?: string | undefined }) {
  const ids = useMemo(() => contentsOf(of), [of]);
  if (ids.length === 0) return null;
  return <div className="contents">{ids.slice(0, MOST).map((id) => <One key={id} id={id} token={token} />)}</div>;
}

function One({ id, token }: { id: string; token: string | undefined }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [told, tell] = useState("reading…");
  const address = `${base}/api/v1/content/${id}`;
  useEffect(() => {
    const abort = new AbortController();
    const headers: HeadersInit = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const show = async () => {
      const reply = await fetch(address, { headers, signal: abort.signal });
      const type = reply.headers.get("content-type") ?? "";
      if (!reply.ok) return reply.status === 404 ? "it is no longer there" : `the answer was ${reply.status}`;
      if (!type.startsWith("image/")) return `${type}, ${reply.headers.get("content-length") ?? "?"} bytes`;
      const picture = await createImageBitmap(await reply.blob());
      const root = canvas.current;
      if (root === null) return "";
      [root.width, root.height] = [picture.width, picture.height];
      root.getContext("2d")?.drawImage(picture, 0, 0);
      return "";
    };
    show().then((said) => { if (said !== "") abort.abort(); tell(said); }, () => { if (!abort.signal.aborted) tell("it could not be read"); });
    return () => abort.abort();
  }, [address, token]);
  return (
    <figure>
      <canvas ref={canvas} role="img" aria-label={`Picture ${id}`} hidden={told !== ""} />
      <figcaption className="soft">
        {token === undefined ? <a href={address} target="_blank" rel="noreferrer">{id.slice(-6)}</a> : null} {told}
      </figcaption>
    </figure>
  );
}
