"""The codecs and compressors, one file each."""
