// A workflow's graph: what runs is in sight, and each node leads to its task.

import { type RefObject, useEffect, useMemo, useRef, useState } from "react";
import type { Shapes } from "../api.ts";
import { go } from "../router.ts";
import { layered } from "../state/graph.ts";

type Node = Shapes["WorkflowNode"];

const WIDTH = 148;
const HEIGHT = 44;
const ACROSS = 48; // between two layers
const DOWN = 16; // between two of a layer
const TIGHT = 6; // the same, where there is little room
const EDGE = 12;
const NARROWEST = 88;
const LITTLE_ROOM = "(max-width: 720px)";

export function Graph({ nodes, label }: { nodes: readonly Node[]; label: string }) {
  const place = useRef<HTMLDivElement>(null);
  // Where a node stands depends on the edges alone: it does not jump while the workflow runs.
  const shape = nodes.map(({ id, after }) => `${id}<${after.join(",")}`).join(";");
  const layout = useMemo(() => layered(nodes), [shape]);
  // Where there is little room it goes down instead of to the right.
  const [falls, room] = useRoom(place);
  const width = falls ? Math.max(NARROWEST, Math.min(WIDTH, (room - 2 * EDGE + TIGHT) / layout.rows - TIGHT)) : WIDTH;
  const spotOf = (layer: number, row: number): Spot => falls
    ? { x: EDGE + row * (width + TIGHT), y: EDGE + layer * (HEIGHT + ACROSS) }
    : { x: EDGE + layer * (WIDTH + ACROSS), y: EDGE + row * (HEIGHT + DOWN) };
  const at = new Map(layout.nodes.map(({ id, layer, row }) => [id, spotOf(layer, row)]));
  const last = spotOf(Math.max(layout.layers, 1) - 1, Math.max(layout.rows, 1) - 1);
  const running = nodes.find(({ status }) => status === "running")?.id;
  useEffect(() => {
    const spot = running === undefined ? undefined : at.get(running);
    const root = place.current;
    if (spot && root) root.scrollTo({ left: spot.x - root.clientWidth / 2, top: spot.y - root.clientHeight / 2, behavior: "smooth" });
  }, [running]);
  return (
    <div className="graph scroll" ref={place} tabIndex={0} role="region" aria-label={label}>
      <svg width={last.x + width + EDGE} height={last.y + HEIGHT + EDGE} aria-hidden="true">
        {nodes.flatMap(({ id, after, status }) => after.map((up) => <Edge key={`${up} ${id}`} from={at.get(up)} to={at.get(id)} status={status} falls={falls} width={width} />))}
      </svg>
      {nodes.map((node) => {
        const spot = at.get(node.id);
        return (
          <button key={node.id} type="button" className={`node ${node.status}`} data-node={node.name} title={`${node.type}: ${node.status}`}
            style={{ left: spot?.x ?? 0, top: spot?.y ?? 0, width, height: HEIGHT }} onClick={() => go(`/tasks/${node.id}`)}>
            <b className="clip">{node.name}</b>
            <span className="clip">{node.status}{node.status === "running" && node.progress ? ` ${Math.round(node.progress.percent)} %` : ""}{node.attempt > 1 ? `, attempt ${node.attempt}` : ""}</span>
          </button>
        );
      })}
    </div>
  );
}

interface Spot { x: number; y: number }

interface Drawn { from: Spot | undefined; to: Spot | undefined; status: string; falls: boolean; width: number }

function Edge({ from, to, status, falls, width }: Drawn) {
  if (!from || !to) return null;
  const [x1, y1] = falls ? [from.x + width / 2, from.y + HEIGHT] : [from.x + width, from.y + HEIGHT / 2];
  const [x2, y2] = falls ? [to.x + width / 2, to.y] : [to.x, to.y + HEIGHT / 2];
  // One that would run straight behind those between goes around them.
  const isHidden = falls ? x1 === x2 && y2 - y1 > ACROSS : y1 === y2 && x2 - x1 > ACROSS;
  const aside = isHidden ? ((falls ? width : HEIGHT) / 2 + EDGE - 2) / 0.75 : 0; // a curve goes three quarters of the way
  const [xm, ym] = [(x1 + x2) / 2, (y1 + y2) / 2];
  const path = falls
    ? isHidden ? `C${x1 + aside} ${y1 + ACROSS} ${x2 + aside} ${y2 - ACROSS} ${x2} ${y2}` : `C${x1} ${ym} ${x2} ${ym} ${x2} ${y2}`
    : isHidden ? `C${x1 + ACROSS} ${y1 - aside} ${x2 - ACROSS} ${y2 - aside} ${x2} ${y2}` : `C${xm} ${y1} ${xm} ${y2} ${x2} ${y2}`;
  return <path className={`edge ${status}`} d={`M${x1} ${y1} ${path}`} />;
}

/** Whether there is little room, and how much. */
function useRoom(place: RefObject<HTMLDivElement | null>): [boolean, number] {
  const [told, tell] = useState<[boolean, number]>([matchMedia(LITTLE_ROOM).matches, 0]);
  useEffect(() => {
    const root = place.current;
    if (root === null) return;
    const watch = new ResizeObserver(() => tell([matchMedia(LITTLE_ROOM).matches, root.clientWidth]));
    watch.observe(root);
    return () => watch.disconnect();
  }, [place]);
  return told;
}
