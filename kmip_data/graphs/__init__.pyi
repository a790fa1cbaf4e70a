# The public names, each imported on use: type checkers and lazy_loader read this file.
from .eccentricity import local_eccentricity as local_eccentricity
from .encoding import parse_encoding as parse_encoding
from .encodings.degree_profile import local_degree_profile as local_degree_profile
from .encodings.expander import expander_targets as expander_targets
from .encodings.lappe import laplacian_encoding as laplacian_encoding
from .encodings.rwse import random_walk_encoding as random_walk_encoding
from .knn import knn_edges as knn_edges
from .knn import knn_table as knn_table
from .knn_and_radius_graphs import knn_graph as knn_graph
from .knn_and_radius_graphs import radius_graph as radius_graph
