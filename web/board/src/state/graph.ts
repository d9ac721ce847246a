// A graph in layers: each node right of all that it waits for, with few edges crossing. Pure.

export interface Node {
  id: string;
  after: readonly string[];
}

export interface Placed {
  id: string;
  /** From the left. */
  layer: number;
  /** From the top of its layer. */
  row: number;
}

export interface Layout {
  nodes: readonly Placed[];
  layers: number;
  /** In the fullest layer. */
  rows: number;
}

const SWEEPS = 4;

export function layered(nodes: readonly Node[]): Layout {
  const known = new Set(nodes.map(({ id }) => id));
  const ups = new Map(nodes.map(({ id, after }) => [id, after.filter((up) => known.has(up))]));
  const downs = new Map<string, string[]>(nodes.map(({ id }) => [id, []]));
  for (const [id, all] of ups) for (const up of all) downs.get(up)?.push(id);
  const layerOf = depths(ups, downs);
  const layers: string[][] = [];
  for (const { id } of nodes) (layers[layerOf.get(id) ?? 0] ??= []).push(id);
  const rows = new Map(layers.flatMap((ids) => ids.map((id, row) => [id, row] as const)));
  for (let n = 0; n < SWEEPS; n += 1) {
    const forth = n % 2 === 0;
    for (const layer of forth ? layers : [...layers].reverse()) sort(layer, rows, forth ? ups : downs);
  }
  const placed = layers.flatMap((ids, layer) => ids.map((id, row) => ({ id, layer, row })));
  return { nodes: placed, layers: layers.length, rows: layers.reduce((most, ids) => Math.max(most, ids.length), 0) };
}

type Edges = ReadonlyMap<string, readonly string[]>;

/** The longest way to each node; in a circle, which the server makes none of, it is 0. */
function depths(ups: Edges, downs: Edges): Map<string, number> {
  const layerOf = new Map<string, number>();
  const missing = new Map([...ups].map(([id, all]) => [id, all.length]));
  const ready = [...ups.keys()].filter((id) => missing.get(id) === 0);
  for (const id of ready) {
    const layer = layerOf.get(id) ?? 0;
    layerOf.set(id, layer);
    for (const down of downs.get(id) ?? []) {
      layerOf.set(down, Math.max(layerOf.get(down) ?? 0, layer + 1));
      const left = (missing.get(down) ?? 0) - 1;
      missing.set(down, left);
      if (left === 0) ready.push(down);
    }
  }
  return layerOf;
}

/** Each near the middle of its neighbours; who has none stays where it is. */
function sort(layer: string[], rows: Map<string, number>, neighbours: Edges): void {
  const place = new Map(layer.map((id) => {
    const near = neighbours.get(id) ?? [];
    const own = rows.get(id) ?? 0;
    return [id, near.length === 0 ? own : near.reduce((sum, one) => sum + (rows.get(one) ?? 0), 0) / near.length];
  }));
  layer.sort((a, b) => (place.get(a) ?? 0) - (place.get(b) ?? 0));
  layer.forEach((id, row) => rows.set(id, row));
}
