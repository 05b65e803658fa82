"""The report of a run: one page that may be published, and one of private figures that must be kept."""

from hf_dpsynth.publish.report.write import Report, write_report

__all__ = ["Report", "write_report"]
