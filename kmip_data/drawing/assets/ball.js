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
  const distance = new Map();
  const open = new Map([[node, 0]]); // reached, and not settled yet: few enough to look through
  const before = new Map();
  while (open.size) {
    let [from, so_far] = [-1, Infinity];
    for (const [each, far] of open) if (far < so_far) [from, so_far] = [each, far];
    open.delete(from);
    distance.set(from, so_far);
    for (let e = first[from]; e < first[from + 1]; e++) {
      const [to, through] = [other[e], so_far + length[e]];
      if (!ball.has(to) || distance.has(to) || through >= (open.get(to) ?? Infinity)) continue;
      open.set(to, through);
      before.set(to, from);
    }
  }
  let [to, most] = [node, 0];
  for (const [each, far] of distance) if (far > most || (far === most && each < to)) [to, most] = [each, far];
  const path = [to];
  while (path[0] !== node) path.unshift(before.get(path[0]));
  return { to, length: most, path };
}
