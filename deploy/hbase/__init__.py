"""The settings of HBase and HDFS, each with its default and its reason."""
