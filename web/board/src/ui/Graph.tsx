// A workflow's graph: what runs is in sight, and each node leads to its task.

import { useEffect, useMemo, useRef } from "react";
import type { Shapes } from "../api.ts";
import { go } from "../router.ts";
import { layered } from "../state/graph.ts";

type Node = Shapes["WorkflowNode"];

const WIDTH = 148;
const HEIGHT = 44;
const ACROSS = 196;
const DOWN = 60;
const EDGE = 12;

export function Graph({ nodes, label }: { nodes: readonly Node[]; label: string }) {
  const place = useRef<HTMLDivElement>(null);
  // Where a node stands depends on the edges alone: it does not jump while the workflow runs.
  const shape = nodes.map(({ id, after }) => `${id}<${after.join(",")}`).join(";");
  const layout = useMemo(() => layered(nodes), [shape]);
  const at = new Map(layout.nodes.map(({ id, layer, row }) => [id, { x: EDGE + layer * ACROSS, y: EDGE + row * DOWN }]));
  const running = nodes.find(({ status }) => status === "running")?.id;
  useEffect(() => {
    const spot = running === undefined ? undefined : at.get(running);
    const root = place.current;
    if (spot && root) root.scrollTo({ left: spot.x - root.clientWidth / 2, top: spot.y - root.clientHeight / 2, behavior: "smooth" });
  }, [running]);
  return (
    <div className="graph scroll" ref={place} tabIndex={0} role="region" aria-label={label}>
      <svg width={layout.layers * ACROSS} height={layout.rows * DOWN + EDGE} aria-hidden="true">
        {nodes.flatMap(({ id, after, status }) => after.map((up) => <Edge key={`${up} ${id}`} from={at.get(up)} to={at.get(id)} status={status} />))}
      </svg>
      {nodes.map((node) => {
        const spot = at.get(node.id);
        return (
          <button key={node.id} type="button" className={`node ${node.status}`} data-node={node.name} title={`${node.type}: ${node.status}`}
            style={{ left: spot?.x ?? 0, top: spot?.y ?? 0, width: WIDTH, height: HEIGHT }} onClick={() => go(`/tasks/${node.id}`)}>
            <b className="clip">{node.name}</b>
            <span className="clip">{node.status}{node.status === "running" && node.progress ? ` ${Math.round(node.progress.percent)} %` : ""}{node.attempt > 1 ? `, attempt ${node.attempt}` : ""}</span>
          </button>
        );
      })}
    </div>
  );
}

interface Spot { x: number; y: number }

function Edge({ from, to, status }: { from: Spot | undefined; to: Spot | undefined; status: string }) {
  if (!from || !to) return null;
  const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
  const middle = (x1 + x2) / 2;
  return <path className={`edge ${status}`} d={`M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`} />;
}
