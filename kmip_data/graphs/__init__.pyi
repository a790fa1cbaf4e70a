# The public names, each imported on use: type checkers read this file, and so does __init__.py.
from kmip_data.graphs.eccentricity import local_eccentricity as local_eccentricity
from kmip_data.graphs.edges import knn_graph as knn_graph
from kmip_data.graphs.edges import radius_graph as radius_graph
from kmip_data.graphs.encoding import parse_encoding as parse_encoding
from kmip_data.graphs.encodings.degree_profile import local_degree_profile as local_degree_profile
from kmip_data.graphs.encodings.expander import expander_targets as expander_targets
from kmip_data.graphs.encodings.lappe import laplacian_encoding as laplacian_encoding
from kmip_data.graphs.encodings.rwse import random_walk_encoding as random_walk_encoding
from kmip_data.graphs.knn import knn_edges as knn_edges
from kmip_data.graphs.knn import knn_table as knn_table
from kmip_data.graphs.neighbor_loader import NeighborLoader as NeighborLoader
