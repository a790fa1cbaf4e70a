"""Pictures and masks to graphs of superpixels, by the construction of LRGB."""
