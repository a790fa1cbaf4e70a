// Balls of so many hops, and the farthest of the shortest paths inside them: what makes the label of a city.

// The undirected graph of (2, S) pairs, one after another, by node: its neighbours are other[first[i]..first[i + 1]].
function neighbourhoods(count, pairs, lengths) {
  const first = new Uint32Array(count + 1);
  for (const node of pairs) first[node + 1]++;
  for (let i = 0; i < count; i++) first[i + 1] += first[i];
  const next = first.slice();
  const other = new Uint32Array(pairs.length);
  const length = new Float64Array(pairs.length);
  for (let e = 0; e < pairs.length; e += 2) {
    for (const [from, to] of [[pairs[e], pairs[e + 1]], [pairs[e + 1], pairs[e]]]) {
      other[next[from]] = to;
      length[next[from]++] = lengths ? lengths[e / 2] : 1;
    }
  }
  return { first, other, length };
}

// Every node that at most `hops` edges lead to, with how many do: a Map in the order of a breadth-first search.
function ballOf({ first, other }, node, hops) {
  const found = new Map([[node, 0]]);
  for (const [from, hop] of found) {
    if (hop === hops) break;
    for (let e = first[from]; e < first[from + 1]; e++) {
      if (!found.has(other[e])) found.set(other[e], hop + 1);
    }
  }
  return found;
}

// The node of the ball whose shortest path inside it is longest (of equal ones that with the least number),
// the length, and the path. Lengths add up from the middle outwards in float64, as the build adds them.
function farthestPath({ first, other, length }, ball, node) {
  const distance = new Map([[node, 0]]);
  const before = new Map();
  const done = new Set();
  const heap = [[0, node]];
  while (heap.length) {
    const [so_far, from] = takeLeast(heap);
    if (done.has(from)) continue;
    done.add(from);
    for (let e = first[from]; e < first[from + 1]; e++) {
      const to = other[e];
      const through = so_far + length[e];
      if (!ball.has(to) || !(through < (distance.get(to) ?? Infinity))) continue;
      distance.set(to, through);
      before.set(to, from);
      put(heap, [through, to]);
    }
  }
  let [to, most] = [node, 0];
  for (const [each, far] of distance) if (far > most || (far === most && each < to)) [to, most] = [each, far];
  const path = [to];
  while (path[0] !== node) path.unshift(before.get(path[0]));
  return { to, length: most, path };
}

function put(heap, item) {
  let at = heap.push(item) - 1;
  while (at && heap[(at - 1) >> 1][0] > item[0]) {
    heap[at] = heap[(at - 1) >> 1];
    at = (at - 1) >> 1;
  }
  heap[at] = item;
}

function takeLeast(heap) {
  const least = heap[0];
  const item = heap.pop();
  let at = 0;
  for (let child; heap.length && (child = 2 * at + 1) < heap.length; at = child) {
    if (child + 1 < heap.length && heap[child + 1][0] < heap[child][0]) child++;
    if (heap[child][0] >= item[0]) break;
    heap[at] = heap[child];
  }
  if (heap.length) heap[at] = item;
  return least;
}
