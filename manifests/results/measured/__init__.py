"""Results of this package, measured; `kmip-data train --reproduce` trains a row again."""
