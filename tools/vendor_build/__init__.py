"""From a manifest to a kernel for the vendor's tools: docs/vendor_build.md. None of it has run with
them."""
