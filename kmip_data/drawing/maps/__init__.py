"""Maps of cities: a build of one street graph, drawn where its intersections lie."""
